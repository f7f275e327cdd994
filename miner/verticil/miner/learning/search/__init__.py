"""Searches for a structure: `protocol` says what a search is, `numerics.model.constraints` what every network must meet.

`genetic`, `greedy`, `order` (with the exact search), `tree` and `hill_climb` are one search each, `compiled` and `draws`
are parts of them.
"""
