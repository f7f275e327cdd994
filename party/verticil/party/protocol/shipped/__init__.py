"""Which protocols this program ships."""
