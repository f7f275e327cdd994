"""What two parties put between them and a relay that they need not trust: seals, their keys, freshness."""
