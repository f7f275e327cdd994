"""Compiled loops of the searches, each beside the plain code that it names. `genetic` has their random numbers."""
