"""One real Kubernetes node next to the simulated ones: kubelet, containerd and runc.

This package knows how to create such a node, and nothing of GPUs except the devices that the node declares. The rest of
the sandbox calls `capable`, `start`, `stop`, `running`, `trouble` and `import_images`.
"""

from dovetail_sandbox.realnode.capability import capable
from dovetail_sandbox.realnode.errors import NodeFailedError, NotCapableError, RealNodeError
from dovetail_sandbox.realnode.layout import NODE_NAME
from dovetail_sandbox.realnode.node import ControlPlane, import_images, running, start, stop, trouble

__all__ = [
    "NODE_NAME",
    "ControlPlane",
    "NodeFailedError",
    "NotCapableError",
    "RealNodeError",
    "capable",
    "import_images",
    "running",
    "start",
    "stop",
    "trouble",
]
