"""A party that runs: its connection to the miner, what it hears there, and its studies' work."""
