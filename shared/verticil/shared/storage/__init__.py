"""A node's durable state: one SQLite file, its schema, its rows as values."""
