"""The API objects of a real node, as plain dictionaries. Data only."""

import json
from typing import Any

from dovetail import names
from dovetail_sandbox.realnode.layout import CLUSTER_DNS, NODE_NAME, NodeNetwork

COREDNS_USER = "dovetail:coredns"
TAINT_KEY = f"{names.GROUP}/real-node"

# The images of the simulated workloads do not exist: only pods with a toleration may run on a node that runs them.
TAINT: dict[str, str] = {"key": TAINT_KEY, "value": "true", "effect": "NoSchedule"}

# What the agent's simulated provider serves for this node.
SIMULATED_DEVICES = {"model": "T4", "count": 2, "memoryMiB": 16384, "reservedMiB": 0, "vendor": "nvidia"}


def as_json(network: NodeNetwork) -> str:
    """One list for `kubectl apply`: the node, its runtime class, and cluster DNS."""
    items = [node(), runtime_class(), dns_role(), dns_role_binding(), dns_service(), dns_endpoints(network)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def node() -> dict[str, Any]:
    """The Node before kubelet registers it: it never exists without taint, label and devices."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE_NAME,
            "labels": {
                names.LABEL_MANAGED: "true",
                names.LABEL_MODEL: str(SIMULATED_DEVICES["model"]),
                "kubernetes.io/hostname": NODE_NAME,
            },
            "annotations": {names.SIMULATED_DEVICES: json.dumps(SIMULATED_DEVICES)},
        },
        "spec": {"taints": [TAINT]},
    }


def node_status(network: NodeNetwork) -> str:
    """The address at which the API server finds kubelet. Kubelet will report the same."""
    return json.dumps({"status": {"addresses": [{"type": "InternalIP", "address": str(network.node_address)}]}})


def runtime_class() -> dict[str, Any]:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": names.RUNTIME_CLASS},
        "handler": "nvidia",
    }


def dns_role() -> dict[str, Any]:
    """What CoreDNS' `kubernetes` plugin reads."""
    verbs = ["list", "watch"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": COREDNS_USER},
        "rules": [
            {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": verbs},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
        ],
    }


def dns_role_binding() -> dict[str, Any]:
    api_group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{api_group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": COREDNS_USER},
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": COREDNS_USER},
        "subjects": [{"apiGroup": api_group, "kind": "User", "name": COREDNS_USER}],
    }


def dns_service() -> dict[str, Any]:
    """The address in every container's resolv.conf. CoreDNS itself is a process of the node."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {
            "clusterIP": str(CLUSTER_DNS),
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        },
    }


def dns_endpoints(network: NodeNetwork) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-real-node",
            "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": "kube-dns",
                "endpointslice.kubernetes.io/managed-by": "dovetail-sandbox",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [str(network.node_address)], "conditions": {"ready": True}}],
        "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
        ],
    }
