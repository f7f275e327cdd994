"""Parties without a line: their files are taken in as if they called, and what they would be told is written into files."""
