"""How a node joins a federation, stays in it and leaves it: requests, signing, installation, renewal, revocation, hot reload."""
