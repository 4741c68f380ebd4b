"""Processes of a node: which pod owns each of them, and how much of a device it uses. Reads `/proc`, nothing else."""
