"""What a site's people allow: limits, approvals, votes, rules, and the ledger of what was spent."""
