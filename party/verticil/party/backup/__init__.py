"""Backup and retention of a site's state."""
