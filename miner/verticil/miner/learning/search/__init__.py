"""Searches for a structure: `protocol` says what a search is, `constraints` what every network must meet.

`genetic`, `greedy`, `order`, `exact`, `tree`, `hill_climb` and `given` are one search each; `operators`, `families`,
`restricted_operators` and `compiled` are parts of them.
"""
