"""What a site's people decide: approvals, votes, rules that approve, and the ledger of what was spent."""
