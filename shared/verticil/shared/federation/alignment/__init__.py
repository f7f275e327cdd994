"""How the parties agree on who is the same person: what both sides of an alignment stand on."""
