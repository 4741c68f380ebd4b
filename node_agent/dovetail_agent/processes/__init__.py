"""What the kernel says of processes: identity, cgroup, load of the host. Reads `/proc` and nothing else."""
