"""Pages in a browser, for the people of one node: how they are served, and what all of them look like."""
