"""What may happen to a study at the miner, from durable facts alone."""
