"""The configuration files of the node's programs, as text. Pure: values in, files out.

They include everything that a machine with cgroup v1, swap or missing privileges needs, with the reason.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail_sandbox.realnode.layout import (
    CDI_FOLDER,
    CLUSTER_DNS,
    CLUSTER_DOMAIN,
    CONTAINERD_SOCKET,
    INNER,
    NODE_NAME,
    NRI_SOCKET,
    NodeNetwork,
)
from dovetail_sandbox.realnode.objects import TAINT

# What kubelet would write to the host's kernel, which must stay unchanged. The node reads these values from files
# mounted over /proc/sys, finds them as it wants them, and writes nothing.
KERNEL_SETTINGS: Mapping[str, int] = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def files(
    *, network: NodeNetwork, cgroup: str, cni_plugins: Path, sandbox_image: str, snapshotter: str
) -> dict[str, str]:
    """Return every configuration file by its path below `etc`."""
    return {
        "containerd.toml": containerd(cni_plugins=cni_plugins, sandbox_image=sandbox_image, snapshotter=snapshotter),
        "cni/10-dovetail.conflist": _json(cni(network)),
        "kubelet.yaml": _json(kubelet(network, cgroup=cgroup)),
        "kube-proxy.yaml": _json(kube_proxy(network)),
        "Corefile": corefile(network),
        "resolv.conf": f"nameserver {network.node_address}\n",
        **{f"sysctl/{name}": f"{value}\n" for name, value in KERNEL_SETTINGS.items()},
    }


def containerd(*, cni_plugins: Path, sandbox_image: str, snapshotter: str) -> str:
    """Return containerd's TOML.

    The runtime class `nvidia` runs plain runc: the devices are simulated.
    """
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    runtimes = "\n".join(
        f"[{runtime}.containerd.runtimes.{name}]\nruntime_type = 'io.containerd.runc.v2'\n"
        f"[{runtime}.containerd.runtimes.{name}.options]\nSystemdCgroup = false\n"
        for name in ("runc", "nvidia")
    )
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE no process may lower its score, and runc would fail.
    return f"""version = 3
imports = []

[plugins.'io.containerd.cri.v1.images']
snapshotter = '{snapshotter}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{sandbox_image}'

[plugins.'io.containerd.nri.v1.nri']
disable = false
socket_path = '{NRI_SOCKET}'
plugin_path = '{INNER}/nri/plugins'
plugin_config_path = '{INNER}/nri/conf.d'

[{runtime}]
restrict_oom_score_adj = true
cdi_spec_dirs = ['{CDI_FOLDER}']
[{runtime}.cni]
bin_dirs = ['{cni_plugins}']
conf_dir = '{INNER}/etc/cni'

{runtimes}"""


def cni(network: NodeNetwork) -> dict[str, Any]:
    """Return the pod network: one routed link per pod.

    `ptp` rather than `bridge`: every packet passes through the node's routing with kube-proxy's rules, also between two
    pods. A bridge needs br_netfilter for that.
    """
    return {
        "cniVersion": "1.0.0",
        "name": "dovetail",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,  # the host has a route to the pods, so they keep their address
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": str(network.pods)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def kubelet(network: NodeNetwork, *, cgroup: str) -> dict[str, Any]:
    """Return kubelet's configuration. The API server authorises requests for logs and exec."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(network.node_address),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{INNER}/etc/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "clusterDNS": [str(CLUSTER_DNS)],
        "clusterDomain": CLUSTER_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "resolvConf": f"{INNER}/etc/resolv.conf",
        "maxPods": 100,  # host-local assigns the addresses of a /25
        "registerWithTaints": [TAINT],
        "failCgroupV1": False,
        "failSwapOn": False,
        # A developer's nearly full disk must not evict the pods, nor delete images that no registry has.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
    }


def kube_proxy(network: NodeNetwork) -> dict[str, Any]:
    """Return kube-proxy's configuration: nftables, in the node's own network namespace."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": NODE_NAME,
        "clientConnection": {"kubeconfig": f"{INNER}/etc/kube-proxy.kubeconfig"},
        "clusterCIDR": str(network.pods),
        "detectLocalMode": "ClusterCIDR",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "oomScoreAdj": 0,
        # The connection table belongs to the host and stays unchanged.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def corefile(network: NodeNetwork) -> str:
    """Return CoreDNS' configuration.

    It answers only for the cluster: the node has no route to the outside.
    """
    return f"""{CLUSTER_DOMAIN}:53 in-addr.arpa:53 {{
    bind {network.node_address}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {INNER}/etc/coredns.kubeconfig
    }}
    cache 5
}}
"""


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"
