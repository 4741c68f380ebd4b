"""Nodes, devices and quotas."""
