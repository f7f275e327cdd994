"""Draw, order and check records; writes no release."""
