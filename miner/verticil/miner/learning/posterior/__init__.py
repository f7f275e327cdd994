"""Posteriors of structures: scores of every source, sampled graphs, and networks drawn with them."""
