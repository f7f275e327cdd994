"""Randomization as a channel: transition matrices, subset selection, their privacy, and the noise on shared tables."""
