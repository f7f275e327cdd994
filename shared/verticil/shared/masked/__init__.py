"""Model III: the arithmetic of shares, and the rounds in which parties send them."""
