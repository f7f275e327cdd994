"""How good synthetic data are, and what they disclose."""
