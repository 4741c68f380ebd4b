"""Reservations for jobs at the head of the queue, and what may run before them. Pure."""
