"""Pools that grow: plans on nodes that do not exist yet, and requests for them. Pure; the time is an argument."""
