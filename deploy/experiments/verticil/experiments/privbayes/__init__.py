"""PrivBayes (Bao, Xiao, Zhao, Zhang & Ding, "Synthetic data generation with differential privacy via Bayesian networks", JPC
11(3) 2021) beside other ways to synthetic records, by the scores of NIST's 2018 challenge: `datasets` has the records, `nist` the
scores, `lines` the ways, `experiment` runs them, `figures` draws them.
"""
