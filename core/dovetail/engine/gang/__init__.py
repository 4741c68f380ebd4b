"""Places all workers of a job together, or says why it cannot."""
