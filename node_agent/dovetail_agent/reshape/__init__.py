"""Optional: partitions idle GPUs in MIG mode as `GPUNode.spec.reshape` requests. Loaded with `--reshape`."""
