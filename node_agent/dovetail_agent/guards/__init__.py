"""Features that check tenants and devices: memory, foreign processes, bad devices."""
