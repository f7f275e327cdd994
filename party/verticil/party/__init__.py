"""The daemon at a data-holding site: reads, links, randomizes, approves, records and ships its own columns."""
