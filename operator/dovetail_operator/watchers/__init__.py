"""Loops that run next to the queue: idle jobs, Kueue, Services, node tenants."""
