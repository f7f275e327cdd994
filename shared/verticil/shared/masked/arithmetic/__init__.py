"""Arithmetic of tables over several parties of which nobody sees a row: a finite field, its random words, and products in it."""
