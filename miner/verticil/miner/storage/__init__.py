"""What the miner keeps: a catalogue of facts (SQLite) and files named by digests and numbers, never by a foreign name."""
