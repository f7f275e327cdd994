"""Searches for a structure. `protocol` says what a search is; every other module is one search."""
