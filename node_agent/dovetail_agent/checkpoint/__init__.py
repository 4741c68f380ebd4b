"""Optional: suspends processes to host memory with CUDA's checkpoint API. Loaded with `--suspend-to-host`."""
