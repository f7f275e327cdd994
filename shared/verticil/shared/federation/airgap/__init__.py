"""Offline exchange: bundles that are carried by hand between the miner and a party."""
