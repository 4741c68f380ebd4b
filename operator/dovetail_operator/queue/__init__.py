"""The loop over the queue, and what it asks of the state."""
