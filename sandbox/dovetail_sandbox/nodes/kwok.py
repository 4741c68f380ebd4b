"""Simulated nodes as Kubernetes has them, and the configuration that kwokctl makes a control plane of. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail import names
from dovetail_sandbox.nodes.node_sets import SimulatedNode

FAKE_NODE: Final = "kwok.x-k8s.io/node"
SERVICE_ADDRESS: Final = "10.0.0.1"  # the first of kube-apiserver's default service range, by which pods reach it
PORTS: Final = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "default-scheduler", "kwok")
_MAX_PODS: Final = "110"
# Go's collector of garbage takes a fifth of what a busy API server computes: while their memory is small, it and those
# that it keeps busy are told to run it seldom.
_SELDOM_COLLECTED: Final = [{"name": "GOGC", "value": "400"}, {"name": "GOMEMLIMIT", "value": "4GiB"}]


def manifest(node: SimulatedNode) -> dict[str, Any]:
    """The Node object. The agent's simulated provider reads the devices from its annotation."""
    resources_ = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "ephemeral-storage": "1Ti",
        "pods": _MAX_PODS,
    }
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    annotations = {FAKE_NODE: "fake"}
    if node.devices:
        labels |= {names.LABEL_MODEL: node.model}
        if node.resource:
            # The plugin of a real node would advertise this; here nobody else does.
            resources_[node.resource] = str(node.devices)
            labels |= _discovered(node)
        else:
            labels |= {names.LABEL_MANAGED: "true"}
        annotations[names.SIMULATED_DEVICES] = json.dumps(
            {
                "model": node.model,
                "count": node.devices,
                "memoryMiB": node.device_memory_mib,
                "reservedMiB": 0,
                "vendor": node.vendor,
            }
        )
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": annotations},
        "status": {"capacity": resources_, "allocatable": resources_, "nodeInfo": _node_info()},
    }


def _discovered(node: SimulatedNode) -> dict[str, str]:
    """The labels of NVIDIA's feature discovery; other vendors have none that say as much."""
    if node.vendor != "nvidia":
        return {}
    return {
        "nvidia.com/gpu.product": node.model,
        "nvidia.com/gpu.count": str(node.devices),
        "nvidia.com/gpu.memory": str(node.device_memory_mib),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """Where the API server's audit policy is, and where it writes one line of JSON for each request."""

    policy: Path
    log: Path


def configuration(
    *,
    ports: Mapping[str, int],
    binaries: Mapping[str, Path],
    kube_version: str,
    pki: Path,
    real_node: bool,
    requests: RequestLog | None = None,
) -> str:
    """kwokctl's configuration with our stages: every port and program is said, so that it chooses none."""
    options = {
        "runtime": "binary",
        "kubeVersion": kube_version,
        "bindAddress": "127.0.0.1",
        "etcdPort": ports["etcd"],
        "etcdPeerPort": ports["etcd-peer"],
        "kubeApiserverPort": ports["kube-apiserver"],
        "kubeControllerManagerPort": ports["kube-controller-manager"],
        "kubeSchedulerPort": ports["default-scheduler"],
        "kwokControllerPort": ports["kwok"],
        "etcdBinary": str(binaries["etcd"]),
        "kubeApiserverBinary": str(binaries["kube-apiserver"]),
        "kubeControllerManagerBinary": str(binaries["kube-controller-manager"]),
        "kubeSchedulerBinary": str(binaries["kube-scheduler"]),
        "kwokControllerBinary": str(binaries["kwok"]),
        "kubectlBinary": str(binaries["kubectl"]),
        "kubeAuthorization": True,
        "kubeAdmission": True,
        "kubeApiserverCertSANs": [SERVICE_ADDRESS],
        "disableQPSLimits": True,
    }
    document = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": options,
        "componentsPatches": _patches(pki=pki, real_node=real_node, requests=requests),
    }
    stages = resources.files("dovetail_sandbox").joinpath("data/stages.yaml").read_text(encoding="utf-8")
    return f"{yaml.safe_dump(document, sort_keys=False)}---\n{stages}"


def audit_policy(*, namespace: str) -> str:
    """An audit policy that records the requests of one namespace's service accounts: who asked what, and the answer.

    A watch is recorded when it starts: its end may come after everybody has stopped reading.
    """
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{namespace}"]},
            {"level": "None"},
        ],
    }
    return yaml.safe_dump(policy, sort_keys=False)


def _patches(*, pki: Path, real_node: bool, requests: RequestLog | None) -> list[dict[str, Any]]:
    api_server = [
        _argument("kubelet-client-certificate", str(pki / "admin.crt")),
        _argument("kubelet-client-key", str(pki / "admin.key")),
        _argument("kubelet-preferred-address-types", "InternalIP"),
        # Holds a kubelet to its own node and pods; kwokctl leaves it out.
        _argument("enable-admission-plugins", "NodeRestriction"),
        # Webhooks are reached by the address of a pod, as there is no kube-proxy beside the API server.
        _argument("enable-aggregator-routing", "true"),
    ]
    if requests is not None:
        api_server.append(_argument("audit-policy-file", str(requests.policy)))
        api_server.append(_argument("audit-log-path", str(requests.log)))
    if real_node:
        # The node comes in over a network interface of its own; everything else listens on loopback only.
        api_server.append(_argument("bind-address", "0.0.0.0", override=True))  # noqa: S104 - see above; TLS and RBAC
    # One of each is all there is: on a busy machine it would lose a Lease to nobody, end, and stay away.
    alone = _argument("leader-elect", "false")
    return [
        # What is lost when the machine fails is thrown away anyway.
        {"name": "etcd", "extraArgs": [_argument("unsafe-no-fsync", "true")], "extraEnvs": _SELDOM_COLLECTED},
        {"name": "kube-apiserver", "extraArgs": api_server, "extraEnvs": _SELDOM_COLLECTED},
        # As clusters run it: each controller has an account of its own, by which policies know the Job controller.
        {
            "name": "kube-controller-manager",
            "extraArgs": [alone, _argument("use-service-account-credentials", "true")],
            "extraEnvs": _SELDOM_COLLECTED,
        },
        {"name": "kube-scheduler", "extraArgs": [alone]},
        {
            "name": "kwok-controller",
            "extraEnvs": _SELDOM_COLLECTED,
            "extraArgs": [
                _argument("manage-all-nodes", "false", override=True),
                _argument("manage-nodes-with-annotation-selector", f"{FAKE_NODE}=fake"),
            ],
        },
    ]


def _argument(key: str, value: str, *, override: bool = False) -> dict[str, Any]:
    return {"key": key, "value": value, "override": override}


def _node_info() -> dict[str, str]:
    empty = ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID")
    return {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "containerRuntimeVersion": "kwok://simulated",
        "kubeletVersion": "simulated",
        **dict.fromkeys(empty, ""),
    }
