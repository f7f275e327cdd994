"""The local page for a site's people."""
