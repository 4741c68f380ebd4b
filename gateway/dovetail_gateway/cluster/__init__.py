"""The cluster in memory: informers, what changed, and the same cluster under other names."""
