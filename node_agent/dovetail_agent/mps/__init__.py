"""NVIDIA's MPS: the daemon, its limits, and the volume driver that gives pods its pipes."""
