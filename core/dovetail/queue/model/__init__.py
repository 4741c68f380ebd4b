"""The values of the queue: candidates, gates, and their order. Pure."""
