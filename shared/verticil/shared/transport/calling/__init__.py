"""The side that dials: connections, calls, and what a line that does not come about is called."""
