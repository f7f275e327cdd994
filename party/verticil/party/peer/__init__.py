"""Model I at one party: a study that its operator loaded, carried out with its peers."""
