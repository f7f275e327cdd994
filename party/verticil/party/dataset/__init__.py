"""A party's table: read, linked, encoded, randomized."""
