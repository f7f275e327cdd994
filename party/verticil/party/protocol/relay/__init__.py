"""Calls between peers that go through the miner, sealed."""
