"""Reservations for the head of the queue, and backfill: what may run before them. Pure."""
