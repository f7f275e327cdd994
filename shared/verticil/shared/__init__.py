"""What party and miner both stand on."""
