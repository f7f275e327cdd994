"""What a site's people ask and command, and how it is worded for them."""
