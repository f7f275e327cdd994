"""What the miner does between calls: alignment, learning, publication, deletion; and the process that learns."""
