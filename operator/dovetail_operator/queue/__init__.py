"""The loop over the queue, and the questions that it asks the state."""
