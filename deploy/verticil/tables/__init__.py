"""What a table at hand is: how its file is read, what each of its columns is, and why. For who holds the table; a node guesses
nothing, and its party.toml says what was decided here."""
