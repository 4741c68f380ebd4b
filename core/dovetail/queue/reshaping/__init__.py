"""Reshaping: which idle GPUs in MIG mode to partition again, so that a waiting request for instances fits. Pure."""
