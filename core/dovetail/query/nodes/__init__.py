"""Answers about nodes and devices: who holds what, sums, and names as people write them. Pure."""
