"""What a node writes down of what it did and of what it refused, in lines that cannot be changed unnoticed."""
