"""How tables write numbers and moments: texts to values, and back."""
