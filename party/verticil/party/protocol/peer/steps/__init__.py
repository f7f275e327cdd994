"""The steps of a study between peers."""
