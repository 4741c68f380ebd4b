"""Preemption: which running jobs end so that a waiting job can start. Pure."""
