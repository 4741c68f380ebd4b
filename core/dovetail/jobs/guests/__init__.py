"""Guests: objects of other kinds that wait in the queue. One adapter for each kind, and what all share. Pure."""
