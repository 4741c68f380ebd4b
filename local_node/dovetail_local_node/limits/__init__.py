"""Limits of CPU and memory by the kernel's cgroups: where jobs may have some, and the cgroup of each job."""
