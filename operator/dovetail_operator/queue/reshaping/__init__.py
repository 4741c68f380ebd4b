"""Optional: GPUs in MIG mode are partitioned again for waiting requests (`mig_reshape`).

Loaded once the configuration enables it, or a GPU has a request of an earlier operator.

decisions   which GPUs are to change after a cycle
requests    carries the changes out with the nodes' agents
"""
