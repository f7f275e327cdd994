"""The miner's two services, and what they keep while it runs; every answer follows from durable facts."""
