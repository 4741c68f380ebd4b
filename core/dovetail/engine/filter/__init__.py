"""Whether a pod fits on a node, on which devices, and why not. Never changes the ledger."""
