"""Estimates with intervals from a release: regressions and tables that correct for the noise which the release states.

`regression.regress` and `tabulation.tabulate` are the two entries. They read the published tables (`tables`) or, where these do
not suffice, records of every sampled network (`sets`).
"""
