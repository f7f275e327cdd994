"""What this site permits and remembers: policy, approval, ledger, and the order in which the party acts."""
