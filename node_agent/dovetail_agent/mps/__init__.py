"""Optional: NVIDIA's MPS, its daemon, its limits, and what the agent reports of it. Loaded with `--mps-state`."""
