"""What a site keeps: backup, restoring, what may be thrown away, and whether what it has is older than what it did."""
