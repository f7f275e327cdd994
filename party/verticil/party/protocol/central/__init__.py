"""The party's side of Model II: columns go to a miner."""
