"""Which graphs the data leave possible, and how probable each is: parent sets, chains over graphs, samples of them."""
