"""The miner's two services, the work between calls, and the learning job; every answer follows from durable facts."""
