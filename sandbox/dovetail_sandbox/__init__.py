"""The sandbox: a real control plane out of local processes, for demo and tests."""
