"""What a peer does for one study, step by step: agree, align, randomize, pull, learn, publish."""
