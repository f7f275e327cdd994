"""The folder of a release: how it is written."""
