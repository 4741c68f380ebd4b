"""Starts nodes that run containers or processes for real."""

import msgspec

from dovetail_sandbox import access, realnode, state
from dovetail_sandbox.bringup.plan import Work
from dovetail_sandbox.installed.chart import Rendered
from dovetail_sandbox.localnode import setup as localnode


def start_local_node(work: Work) -> None:
    """Make this machine a node, whose jobs run as the user's processes."""
    cluster, node = work.cluster, work.local_node()
    rights = Rendered(text="", workloads=(), objects=tuple(localnode.rights()))
    access.apply(rights, kubectl=work.programs["kubectl"], kubeconfig=cluster.kubeconfig)
    access.write_certificate_kubeconfig(
        work.kubeconfig_of(localnode.COMPONENT),
        context=localnode.COMPONENT,
        ca=cluster.pki / "ca.crt",
        certificate=node.certificate("client"),
        key=node.key("client"),
        port=work.api_port,
    )
    kubeconfig = work.kubeconfig_of(localnode.COMPONENT)
    component = node.component(
        ports=cluster.state().ports, kubeconfig=kubeconfig, credential=cluster.credential, umask=work.plan.umask
    )
    desired = state.read_desired(cluster.folder)
    cluster.desire(msgspec.structs.replace(desired, components=[*desired.components, component]))
    cluster.wait_ready([component.name])


def start_real_node(work: Work) -> None:
    """Start kubelet and containerd as a node whose pods are containers."""
    cluster = work.cluster
    plane = realnode.ControlPlane(
        kubeconfig=cluster.kubeconfig,
        ca_cert=cluster.pki / "ca.crt",
        ca_key=cluster.pki / "ca.key",
        api_port=work.api_port,
        binaries=work.programs,
    )
    realnode.start(cluster.folder, control_plane=plane, say=work.report.say)
