"""The party's side of Model III: linkage among the parties, a round of masked tables, and what a miner tells before and after."""
