"""Schema, graph and network: what a Bayesian network is, the constraints on it, and what it implies."""
