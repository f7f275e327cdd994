"""Peers that nobody can dial: calls between parties that pass through the miner, sealed, while every party only dials out."""
