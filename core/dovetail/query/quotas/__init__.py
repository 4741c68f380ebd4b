"""Quotas as a reader sees them, what a change of them would do, and which changes cannot be. Pure."""
