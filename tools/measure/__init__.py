"""Counts of the code's structure that a number can keep from growing. Reads sources alone."""
