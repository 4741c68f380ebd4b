"""Loops that run in parallel to the queue: idle jobs, Kueue, Services, node tenants."""
