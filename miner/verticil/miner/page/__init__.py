"""The pages of the miner: every study, who holds it up, what is published."""
