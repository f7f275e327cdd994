"""Attacks on what the product's mechanisms promise: from fresh draws of the real code, a lower bound of each epsilon."""
