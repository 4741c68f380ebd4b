"""Ranks the nodes and devices where a pod fits. Never refuses."""
