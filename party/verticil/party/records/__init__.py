"""From a local table to released values: reading, encoding, linkage and sticky randomization."""
