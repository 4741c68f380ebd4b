"""The sandbox: a real control plane out of local processes, for demo and tests.

This package has what a cluster on one machine needs, and nothing of Dovetail itself: that comes from the chart, as for
any cluster. `bringup.up` creates a sandbox, `cluster.get` returns a handle to one, and `processes.supervisor` runs its
programs. The content of a sandbox is data: `data/tools.toml`, `data/stages.yaml`, `data/nodes.yaml` and the modules of
`gomod`.
"""
