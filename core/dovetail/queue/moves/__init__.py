"""Moves: which running jobs to restart elsewhere so that a waiting one starts, and the proof of it. Pure."""
