"""The append-only, chained audit log of both sides."""
