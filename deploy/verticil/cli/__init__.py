"""The one `verticil` command: noun, then verb. The only place that knows both party and miner."""
