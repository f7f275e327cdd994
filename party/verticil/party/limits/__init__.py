"""What a site's people write down: limits, rules and codebooks."""
