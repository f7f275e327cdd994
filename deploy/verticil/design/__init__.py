"""A study's design in a browser: its columns beside what follows from them, before anybody works."""
