"""Creates a sandbox: programs, control plane, nodes, chart objects, deployables, real node.

`plan` says what it is to have, `existing` what is already there, and `start` does the steps of `control_plane` and
`install`.
"""

from dovetail_sandbox.bringup.start import fetch, up

__all__ = ["fetch", "up"]
