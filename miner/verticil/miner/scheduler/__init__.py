"""When the miner works on a study, and in which process."""
