"""The generator of KIPPS (Kotal & Joshi) for one organisation's table: a conditional WGAN, by DP-SGD with a loss of rules.

It needs raw rows, so no path between organisations has it. torch does the arithmetic and is imported where it is used: it comes
with the extra ``gan``. Differences to the paper, and why: deploy/docs/theory/kipps.md.
"""
