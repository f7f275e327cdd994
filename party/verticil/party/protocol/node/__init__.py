"""One running party, whatever protocols its studies have: it serves, polls, and asks the registry who does the work."""
