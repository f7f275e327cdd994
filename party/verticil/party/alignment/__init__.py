"""How this party finds the common people in ways other than pseudonyms: committed row order, and blinded lists."""
