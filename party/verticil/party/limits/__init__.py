"""What a site's people write down: limits, rules, codebooks, and the keys of who approves."""
