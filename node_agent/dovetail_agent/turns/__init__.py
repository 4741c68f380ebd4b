"""Time sharing: pods use a device in turns, by the cgroup freezer."""
