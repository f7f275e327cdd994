"""Files that are carried by hand between the miner and a party whose network has no line to it."""
