"""Demonstration data and studies, shipped in the wheel."""
