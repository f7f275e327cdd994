"""What people of a site decide, and how: a study in words, what changed, who may say yes, and the rules that say it for them."""
