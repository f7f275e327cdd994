"""What a party says to the miner and to its peers."""
