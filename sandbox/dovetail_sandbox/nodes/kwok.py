"""Node objects of simulated nodes, and kwokctl's configuration of the control plane. Pure."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail import names
from dovetail.gpu.mig import resource_of
from dovetail.gpu.partition import partition
from dovetail_sandbox.nodes import one_machine
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from dovetail_sandbox.nodes.one_machine import Collection

# the first of kube-apiserver's default service range; pods reach the API server there
SERVICE_ADDRESS: Final = "10.0.0.1"
PORTS: Final = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "default-scheduler")
# Components by the names under which a sandbox shows them.
CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "default-scheduler", "kwok-controller")
_KWOKCTL_NAMES: Final = {"default-scheduler": "kube-scheduler"}
_MAX_PODS: Final = "110"
# Kubernetes' defaults: how long a node's Lease lasts, of which a quarter passes between renewals, and after what time
# without a renewal a node is no longer Ready.
_LEASE_SECONDS: Final = 40
_NODE_GRACE_SECONDS: Final = 50
# Beyond this number of nodes, Leases last longer in proportion. 5,000 nodes would otherwise renew 500 Leases a second,
# which alone keeps two cores busy, so that nodes become Ready slowly.
_NODES_BY_DEFAULT: Final = 1_000
# An API server keeps objects of each node, and their history. It may take a third of the machine's memory for that.
_GIB_OF_A_NODE: Final = 1 / 64
_SHARE_OF_MEMORY: Final = 1 / 3

# By default, 5 workers handle all batch Jobs, each with 3 to 5 requests in turn: a gang's Job waits behind all Jobs
# that end for it. The addresses of its headless Service change with each pod: changes within a second share one write.
_MANY_JOBS: Final = {
    "concurrent-job-syncs": "32",
    "endpoint-updates-batch-period": "1s",
    "endpointslice-updates-batch-period": "1s",
}


def manifest(node: SimulatedNode) -> dict[str, Any]:
    """Build the Node object.

    The agent's simulated provider reads the devices from its annotation.
    """
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
    annotations = {names.SIMULATED_NODE: "fake"}
    if node.devices:
        labels |= {names.LABEL_MODEL: node.model}
        if node.resource:
            # On a real node the vendor's plugin advertises this.
            resources_ |= _advertised(node)
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
            | ({"mig": node.mig} if node.mig else {})
        )
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": annotations},
        "status": {"capacity": resources_, "allocatable": resources_, "nodeInfo": _node_info()},
    }


def _advertised(node: SimulatedNode) -> dict[str, str]:
    """Return what the vendor's plugin advertises: whole devices, and MIG instances in the mixed strategy."""
    instances = Counter(profile for entry in node.mig for profile in partition(entry))
    whole = node.devices - len(node.mig)
    by_profile = {resource_of(profile): str(count) for profile, count in instances.items()}
    return ({node.resource: str(whole)} if whole else {}) | by_profile


def _discovered(node: SimulatedNode) -> dict[str, str]:
    """Return the labels of NVIDIA's feature discovery. Other vendors have no comparable ones."""
    if node.vendor != "nvidia":
        return {}
    return {
        "nvidia.com/gpu.product": node.model,
        "nvidia.com/gpu.count": str(node.devices),
        "nvidia.com/gpu.memory": str(node.device_memory_mib),
    }


def control_plane(*, local_node: bool, real_node: bool) -> list[str]:
    """The components of a sandbox's control plane.

    On a local node, every pod is Dovetail's to schedule, and no node is simulated. A real node's own pods use the
    default scheduler.
    """
    left_out = {"kwok-controller", *(() if real_node else ("default-scheduler",))} if local_node else ()
    return [name for name in CONTROL_PLANE if name not in left_out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the control plane knows its own programs and its user from other users: paths of files.

    - `credential`: the folder of `dovetail_sandbox.credential`, for etcd and its client, and for webhooks.
    - `admission`: the AdmissionConfiguration, by which the API server shows that certificate to the webhook.
    - `user_token`: the file of `dovetail_sandbox.user_token`, by which the API server knows the user's token.
    """

    credential: Path
    admission: Path
    user_token: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLog:
    """The API server's audit policy and its log, with one line of JSON for each request."""

    policy: Path
    log: Path


def configuration(
    *,
    ports: Mapping[str, int],
    binaries: Mapping[str, Path],
    kube_version: str,
    pki: Path,
    access: Access,
    real_node: bool,
    nodes: int = 0,
    memory_gib: float = 0.0,
    requests: RequestLog | None = None,
    authentication: Path | None = None,
    lasting: Path | None = None,
    feature_gates: str = "",
    runtime_config: str = "",
) -> str:
    """Build kwokctl's configuration with our stages; `authentication` is an AuthenticationConfiguration.

    `feature_gates` are the control plane's, and `runtime_config` the API server's, as its own options write them.
    `nodes` is the number of simulated nodes, `memory_gib` the machine's memory in GiB.
    It sets every program, and every port that is used: kwokctl chooses none. A sandbox with a local node has `lasting`,
    a folder for etcd's data: they survive a power failure. It shares its machine with the jobs: Go collects garbage
    more often than by default, and only the controllers run that one machine needs.
    """
    wanted = control_plane(local_node=lasting is not None, real_node=real_node)
    gates = ",".join(filter(None, (one_machine.FEATURE_GATES if lasting else "", feature_gates)))
    document = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            **_options(ports=ports, binaries=binaries),
            **_heartbeats(nodes),
            "kubeVersion": kube_version,
            **({"kubeFeatureGates": gates} if gates else {}),
            **({"kubeRuntimeConfig": runtime_config} if runtime_config else {}),
            "disable": [_KWOKCTL_NAMES.get(name, name) for name in CONTROL_PLANE if name not in wanted],
        },
        "componentsPatches": _patches(
            ports=ports,
            pki=pki,
            access=access,
            real_node=real_node,
            requests=requests,
            authentication=authentication,
            etcd=_TEMPORARY if lasting is None else _lasting_arguments(lasting),
            collection=Collection.of_one_machine()
            if lasting
            else Collection.of_many_nodes(_of_an_api_server(nodes, memory_gib=memory_gib)),
            controllers=one_machine.CONTROLLERS if lasting else (),
            api_server=one_machine.API_SERVER if lasting else {},
        ),
    }
    stages = resources.files("dovetail_sandbox").joinpath("data/stages.yaml").read_text(encoding="utf-8")
    return f"{yaml.safe_dump(document, sort_keys=False)}---\n{stages}"


def _options(*, ports: Mapping[str, int], binaries: Mapping[str, Path]) -> dict[str, Any]:
    """Every port and program, and what all sandboxes have in common."""
    return {
        "runtime": "binary",
        "bindAddress": "127.0.0.1",
        "etcdPort": ports["etcd"],
        "etcdPeerPort": ports["etcd-peer"],
        "kubeApiserverPort": ports["kube-apiserver"],
        "kubeControllerManagerPort": ports["kube-controller-manager"],
        "kubeSchedulerPort": ports["default-scheduler"],
        "etcdBinary": str(binaries["etcd"]),
        "kubeApiserverBinary": str(binaries["kube-apiserver"]),
        "kubeControllerManagerBinary": str(binaries["kube-controller-manager"]),
        "kubeSchedulerBinary": str(binaries["kube-scheduler"]),
        "kwokControllerBinary": str(binaries.get("kwok", "")),
        "kubectlBinary": str(binaries["kubectl"]),
        "kubeAuthorization": True,
        "kubeAdmission": True,
        "kubeApiserverCertSANs": [SERVICE_ADDRESS],
        "disableQPSLimits": True,
    }


def _heartbeats(nodes: int) -> dict[str, Any]:
    """How long a simulated node's Lease lasts, and how long its node stays Ready without a renewal."""
    if nodes <= _NODES_BY_DEFAULT:
        return {}
    return {
        "nodeLeaseDurationSeconds": _LEASE_SECONDS * nodes // _NODES_BY_DEFAULT,
        "kubeControllerManagerNodeMonitorGracePeriodMilliseconds": _NODE_GRACE_SECONDS * nodes,
    }


def starter(program: Path, *, kubectl: Path, port: int, pki: Path) -> str:
    """Return a shell script that runs a program once the API server at this port is ready.

    kube-controller-manager waits ten seconds for a healthy API server and then ends, and kwokctl does not start it
    again. On a busy machine an API server needs longer. kwokctl also asks the program for its version, with one word.
    """
    ask = [
        str(kubectl), "--kubeconfig=/dev/null", "--cache-dir=/dev/null", f"--server=https://127.0.0.1:{port}",
        f"--certificate-authority={pki / 'ca.crt'}", f"--client-certificate={pki / 'admin.crt'}",
        f"--client-key={pki / 'admin.key'}", "get", "--raw=/readyz",
    ]  # fmt: skip
    wait = f"until [ $# -lt 2 ] || {shlex.join(ask)} >/dev/null 2>&1; do sleep 0.2; done"
    return f'#!/bin/sh\n{wait}\nexec {shlex.quote(str(program))} "$@"\n'


def audit_policy(*, namespace: str) -> str:
    """Return an audit policy that records the requests of one namespace's service accounts.

    Each record has the requester, the request and the answer. A watch is recorded at its start: its end can come after
    the log was read.
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


def _patches(
    *,
    ports: Mapping[str, int],
    pki: Path,
    access: Access,
    real_node: bool,
    requests: RequestLog | None,
    authentication: Path | None,
    etcd: list[dict[str, Any]],
    collection: Collection,
    controllers: Sequence[str],
    api_server: Mapping[str, str],
) -> list[dict[str, Any]]:
    of_api_server = _api_server_arguments(
        pki=pki, access=access, real_node=real_node, requests=requests, authentication=authentication
    )
    # Each has one replica: on a busy machine it would miss its Lease renewal, end, and not restart.
    alone = _argument("leader-elect", value="false")
    return [
        {
            "name": "etcd",
            "extraArgs": [*etcd, *_etcd_arguments(ports, credential=access.credential)],
            "extraEnvs": collection.of_others,
        },
        {
            "name": "kube-apiserver",
            "extraArgs": [
                *of_api_server,
                *_etcd_client_arguments(ports, credential=access.credential),
                *(_argument(key, value=value) for key, value in api_server.items()),
            ],
            "extraEnvs": collection.of_api_server,
        },
        # As in clusters: each controller has an account of its own, by which policies recognise the Job controller.
        {
            "name": "kube-controller-manager",
            "extraArgs": [
                alone,
                _HEALTH_ALONE,
                _argument("use-service-account-credentials", value="true"),
                *(_argument(key, value=value) for key, value in _MANY_JOBS.items()),
                *([_argument("controllers", value=",".join(controllers))] if controllers else []),
            ],
            "extraEnvs": collection.of_others,
        },
        {"name": "kube-scheduler", "extraArgs": [alone, _HEALTH_ALONE]},
        {
            "name": "kwok-controller",
            "extraEnvs": collection.of_others,
            "extraArgs": [
                _argument("manage-all-nodes", value="false", override=True),
                _argument("manage-nodes-with-annotation-selector", value=f"{names.SIMULATED_NODE}=fake"),
                # No server: it would show metrics, profiles and pods to all users of the machine, and nothing asks it.
                _argument("server-address", value="", override=True),
                _argument("node-port", value="0", override=True),
            ],
        },
    ]


def _etcd_arguments(ports: Mapping[str, int], *, credential: Path) -> list[dict[str, Any]]:
    """etcd's listeners, for clients and for members, over mutual TLS alone."""
    client, peer = (f"https://127.0.0.1:{ports[name]}" for name in ("etcd", "etcd-peer"))
    urls = {
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"node0={peer}",
    }
    files = {"cert-file": "tls.crt", "key-file": "tls.key", "trusted-ca-file": "ca.crt"}
    return [
        *(_argument(key, value=url, override=True) for key, url in urls.items()),
        *(
            _argument(f"{prefix}{key}", value=str(credential / name))
            for prefix in ("", "peer-")
            for key, name in files.items()
        ),
        *(_argument(f"{prefix}client-cert-auth", value="true") for prefix in ("", "peer-")),
    ]


def _lasting_arguments(folder: Path) -> list[dict[str, Any]]:
    """etcd's data in a folder that outlives it, and little of its log in memory."""
    return [
        _argument("data-dir", value=str(folder), override=True),
        _argument("snapshot-catchup-entries", value=str(one_machine.ETCD_ENTRIES)),
    ]


def _etcd_client_arguments(ports: Mapping[str, int], *, credential: Path) -> list[dict[str, Any]]:
    files = {"etcd-cafile": "ca.crt", "etcd-certfile": "tls.crt", "etcd-keyfile": "tls.key"}
    return [
        _argument("etcd-servers", value=f"https://127.0.0.1:{ports['etcd']}", override=True),
        *(_argument(key, value=str(credential / name)) for key, name in files.items()),
    ]


def admission(kubeconfig: Path) -> str:
    """Return the API server's AdmissionConfiguration: `kubeconfig` has the users that it is for webhooks."""
    webhooks = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "MutatingAdmissionWebhook", "configuration": webhooks}],
    }
    return yaml.safe_dump(document, sort_keys=False)


def webhook_kubeconfig(*, port: int, credential: Path) -> str:
    """Return a kubeconfig whose one user, by the address of the webhook, is the holder of the credential."""
    user = {"client-certificate": str(credential / "tls.crt"), "client-key": str(credential / "tls.key")}
    users = [{"name": f"127.0.0.1:{port}", "user": user}]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}, sort_keys=False)


def _of_an_api_server(nodes: int, *, memory_gib: float) -> int:
    """Up to how many GiB an API server collects garbage seldom."""
    return max(one_machine.SELDOM_COLLECTED_GIB, int(min(nodes * _GIB_OF_A_NODE, memory_gib * _SHARE_OF_MEMORY)))


def _api_server_arguments(
    *, pki: Path, access: Access, real_node: bool, requests: RequestLog | None, authentication: Path | None
) -> list[dict[str, Any]]:
    arguments = [
        _argument("admission-control-config-file", value=str(access.admission)),
        _argument("token-auth-file", value=str(access.user_token)),
        _argument("kubelet-client-certificate", value=str(pki / "admin.crt")),
        _argument("kubelet-client-key", value=str(pki / "admin.key")),
        _argument("kubelet-preferred-address-types", value="InternalIP"),
        # Restricts a kubelet to its own node and pods; kwokctl leaves it out.
        _argument("enable-admission-plugins", value="NodeRestriction"),
        # By these, a program that serves an aggregated API knows its callers.
        _argument("requestheader-client-ca-file", value=str(pki / "ca.crt")),
        _argument("requestheader-allowed-names", value=_PROXY_CLIENT),
        *(_argument(f"requestheader-{key}", value=header) for key, header in _PROXY_HEADERS.items()),
    ]
    if requests is not None:
        arguments.append(_argument("audit-policy-file", value=str(requests.policy)))
        arguments.append(_argument("audit-log-path", value=str(requests.log)))
    if authentication is not None:
        # The API server reads it again when it changes.
        arguments.append(_argument("authentication-config", value=str(authentication)))
    if real_node:
        # The API server reaches webhooks by a pod's address, because it has no kube-proxy. Without pods, a Service of
        # the type ExternalName leads to a process of this machine.
        arguments.append(_argument("enable-aggregator-routing", value="true"))
        # The node connects through a network interface of its own; everything else listens on loopback only.
        arguments.append(_argument("bind-address", value="0.0.0.0", override=True))  # noqa: S104 - see above; TLS and RBAC
    return arguments


def _argument(key: str, *, value: str, override: bool = False) -> dict[str, Any]:
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


# The name in the certificate that kwokctl gives the API server for its calls to aggregated APIs.
_PROXY_CLIENT: Final = "kwok-admin"
_PROXY_HEADERS: Final = {
    "username-headers": "X-Remote-User",
    "group-headers": "X-Remote-Group",
    "extra-headers-prefix": "X-Remote-Extra-",
}
# kwokctl would open /metrics too.
_HEALTH_ALONE: Final = _argument("authorization-always-allow-paths", value="/healthz,/readyz,/livez", override=True)
# Data that a machine failure loses is temporary anyway.
_TEMPORARY: Final = [_argument("unsafe-no-fsync", value="true")]
