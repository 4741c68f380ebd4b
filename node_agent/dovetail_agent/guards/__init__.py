"""Features that judge tenants: memory, foreign processes, bad devices."""
