"""Estimates with intervals from a release: regressions and tables that correct for the noise which the release states.

`regression.regress` and `tabulation.tabulate` are the two entries. Both read the published tables (`tables`).
"""
