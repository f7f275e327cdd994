"""Certificates asked for, issued and registered."""
