"""How parties find their common people without showing who the others are."""
