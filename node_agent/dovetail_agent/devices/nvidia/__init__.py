"""Optional: NVIDIA's devices through NVML. Loaded only on a node that has the library."""
