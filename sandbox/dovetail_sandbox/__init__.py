"""The sandbox: a real control plane out of local processes, for demo and tests.

Here lives what it takes to have a cluster on one machine, and nothing of Dovetail itself: that comes out of the chart,
as for any cluster. `bringup.up` makes a sandbox, `cluster.get` is a handle to one, `supervisor` runs its processes, and
what a sandbox consists of is data: `data/tools.toml`, `data/stages.yaml`, `data/nodes.yaml` and the modules of `gomod`.
"""
