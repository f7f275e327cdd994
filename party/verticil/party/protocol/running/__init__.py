"""The party's running loop."""
