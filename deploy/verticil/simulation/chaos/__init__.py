"""Faults of networks and processes, made on purpose: for `verticil demo --chaos` and for the fault tests."""
