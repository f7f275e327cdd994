"""Files that others wrote: how much of one is read, and what it may inflate to."""
