"""A party without a line to the miner: what it asks goes out in files, and what it is told comes in the same way."""
