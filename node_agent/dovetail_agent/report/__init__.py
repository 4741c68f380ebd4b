"""Inventory and samples into GPUNode.status. Pure, except for `collect`."""
