"""What randomized counts say about the true ones: family designs, Kronecker inverses, estimators, parameters and pair scores."""
