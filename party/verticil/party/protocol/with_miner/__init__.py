"""What any protocol whose studies a miner tells has: agreement, review, ends, and the ways to the miner."""
