"""How nodes meet: transport, identity, membership, alignment, audit, carried files; no study, no release."""
