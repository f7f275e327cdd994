"""One run of the protocol of masked tables at one node: its messages, its secrets, and what follows from what is on the disk."""
