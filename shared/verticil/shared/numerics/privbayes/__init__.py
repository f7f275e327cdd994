"""PrivBayes: a Bayesian network and its tables from noisy scores and noisy counts, for one owner of a whole table."""
