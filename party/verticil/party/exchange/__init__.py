"""What leaves the site: the spool of released bytes, and their way to the miner."""
