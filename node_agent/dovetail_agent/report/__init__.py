"""Turns inventory and samples into GPUNode.status. Pure, except for `collect`."""
