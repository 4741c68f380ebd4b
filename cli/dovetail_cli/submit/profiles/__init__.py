"""Profiles: defaults of gbatch for jobs on a cluster, by user and by namespace."""
