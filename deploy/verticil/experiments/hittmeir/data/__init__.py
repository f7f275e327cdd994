"""The tables of the experiments, compressed; see SOURCE.md."""
