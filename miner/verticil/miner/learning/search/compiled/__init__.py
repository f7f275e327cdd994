"""Compiled loops of the searches. `random` has their random numbers; the other modules say which plain code they stand beside."""
