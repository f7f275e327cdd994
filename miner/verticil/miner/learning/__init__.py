"""From randomized columns to a network: counting, scores of pairs, search, parameters; pure functions of arrays and values."""
