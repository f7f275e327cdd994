"""Honest evaluation: how far synthetic data are from the real data, beside what even good data could not beat."""
