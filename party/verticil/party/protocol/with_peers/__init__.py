"""How parties reach each other, and what any protocol in which they do has: lists, the common people, items for peers."""
