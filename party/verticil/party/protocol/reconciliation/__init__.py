"""A ledger that is older than what was sent: how each protocol learns from others what is missing, and how it is written back."""
