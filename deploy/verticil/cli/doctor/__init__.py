"""What `verticil doctor` looks at."""
