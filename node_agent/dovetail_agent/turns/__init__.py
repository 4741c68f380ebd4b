"""Optional: time sharing, in which pods use a device in turns by the cgroup freezer. Loaded with `--turns`."""
