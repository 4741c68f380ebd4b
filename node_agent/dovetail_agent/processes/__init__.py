"""The kernel's data about processes: identity, cgroup, load of the host. Only reads `/proc`."""
