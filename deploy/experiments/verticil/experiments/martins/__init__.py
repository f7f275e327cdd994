"""The experiments of Martins, Gonçalves & Galletti, "Generation and analysis of synthetic data via Bayesian networks: a robust
approach for uncertainty quantification via Bayesian paradigm": `paper` is what they print, `datasets` has the records, `exact`
the probability of a graph, `methods` the three ways to synthetic records, `experiment` runs them, `figures` draws them.
"""
