"""NVIDIA's devices through NVML."""
