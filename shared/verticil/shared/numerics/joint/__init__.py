"""One joint model from all tables that a study measured."""
