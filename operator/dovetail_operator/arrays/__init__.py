"""Array jobs and sweeps: their tasks. Pure."""
