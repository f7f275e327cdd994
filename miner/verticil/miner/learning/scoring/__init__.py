"""Counts of columns, tables of families, and what a parent is worth: scores, and how sure an edge is."""
