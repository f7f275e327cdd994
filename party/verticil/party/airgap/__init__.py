"""Offline exchange: bundles that are carried by hand."""
