"""API objects into the ledger: nodes, devices, pods, and how fresh their reports are. Pure."""
