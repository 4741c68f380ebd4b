"""Partitions idle GPUs in MIG mode again, as `GPUNode.spec.reshape` requests, and reports how that ended."""
