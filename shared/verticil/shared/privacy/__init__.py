"""What tells something about people, as data; what it costs; and how a release states it."""
