"""The connection to the cluster, and the cluster as it was read."""
