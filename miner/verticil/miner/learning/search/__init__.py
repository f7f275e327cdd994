"""Searches for a structure: `protocol` says what a search is, `constraints` what every network must meet.

`genetic`, `greedy`, `order` (with the exact search), `tree` and `hill_climb` are one search each, a structure that is given
stands in `protocol`; `operators`, `restricted_operators` and `compiled` are parts of them.
"""
