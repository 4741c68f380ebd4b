"""The Node object of this machine, its status and its Lease. Pure."""

from datetime import datetime
from typing import Any, Final

from dovetail import names
from dovetail.formats.timestamps import timestamp
from dovetail_local_node.machine import Machine

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
ADDRESS: Final = "127.0.0.1"
# Jobs that request no CPU still load the machine, so their number has a limit that grows with it.
_PODS: Final = 16
_PODS_PER_CPU: Final = 4

Manifest = dict[str, Any]


def manifest(name: str, *, machine: Machine) -> Manifest:
    """The Node, for its first registration. The agent serves its devices, if the machine has any."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        names.LABEL_MANAGED: "true",
    }
    return {"metadata": {"name": name, "labels": labels}}


def status(*, machine: Machine, port: int, limits: str, now: datetime) -> Manifest:
    """The Node's status: ready, with the machine's CPUs and memory. `port` serves the logs of pods.

    `limits` is a sentence about what the kernel enforces.

    It is for a strategic merge patch, so that what others write into the status stays.
    """
    amounts = {
        "cpu": str(machine.cpus),
        "memory": f"{machine.memory_mib}Mi",
        "pods": str(_PODS + _PODS_PER_CPU * machine.cpus),
    }
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": machine.hostname}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "conditions": [_ready(now, limits=limits)],
        "nodeInfo": {
            "architecture": machine.architecture,
            "bootID": machine.boot_id,
            "containerRuntimeVersion": names.PROCESSES,
            "kernelVersion": machine.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": "local",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": "",
            "systemUUID": "",
        },
    }


def _ready(now: datetime, *, limits: str) -> Manifest:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "LocalNodeReady",
        "message": f"The local node runs jobs as processes of this machine. {limits}",
        "lastHeartbeatTime": timestamp(now),
    }


def lease(name: str, *, node_uid: str, now: datetime) -> Manifest:
    """The node's Lease, by which the node controller sees that the node is alive."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    return {
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%f}Z",
        },
    }
