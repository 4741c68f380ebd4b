"""One sandbox with a real node for all tests of this folder.

Where the machine cannot have one the tests are skipped, and say why; where it can, whatever keeps the node from
coming up is a failure.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dovetail_sandbox import bringup, realnode
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import reporter
from dovetail_sandbox.realnode.commands import call
from dovetail_sandbox.realnode.layout import Layout
from dovetail_sandbox.realnode.node import BINARIES
from tests import commands
from tests.polling import until

NAME = "test-real-node"
# Longer than any `kubectl wait --timeout` of a test, which then says itself what it waited for.
_CALL_SECONDS = 300.0
# Another model than the real node's T4, so that a request for a T4 can go nowhere else.
NODES = "- {name: v100, count: 1, model: V100, devices: 2, memory_mib: 32768, cpu: 32, memory: 64Gi}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RealSandbox:
    """A running sandbox and what a test does with it."""

    cluster: Cluster
    control_plane: realnode.ControlPlane

    @property
    def folder(self) -> Path:
        return self.cluster.folder

    @property
    def kubelet(self) -> Path:
        """Where the node's /var/lib/kubelet is on this machine."""
        return Layout.for_state_dir(self.folder).root / "kubelet"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        kubectl, kubeconfig = self.control_plane.binaries["kubectl"], self.control_plane.kubeconfig
        return call(kubectl, f"--kubeconfig={kubeconfig}", *words, stdin=stdin, timeout_s=_CALL_SECONDS)

    def dovetail(self, *words: str) -> str:
        return call(
            "env", f"KUBECONFIG={self.control_plane.kubeconfig}", *commands.dovetail(), *words, timeout_s=_CALL_SECONDS
        )

    def with_binary(self, name: str, path: Path) -> realnode.ControlPlane:
        return replace(self.control_plane, binaries={**self.control_plane.binaries, name: path})

    def restart(self) -> None:
        realnode.start(self.folder, control_plane=self.control_plane, say=lambda _: None)

    def wait_until(self, condition: Callable[[], bool], *, deadline_s: float = 60.0) -> None:
        until(condition, seconds=deadline_s)


@pytest.fixture(scope="package")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSandbox]:
    if reason := realnode.capable():
        pytest.skip(reason)
    nodes = tmp_path_factory.mktemp("nodes") / "nodes.yaml"
    nodes.write_text(NODES)
    report = reporter(sys.stderr)
    cluster = bringup.up(NAME, report=report, nodes_file=nodes, real_node=True)
    try:
        yield _of(cluster)
    finally:
        cluster.down()


def _of(cluster: Cluster) -> RealSandbox:
    plane = realnode.ControlPlane(
        kubeconfig=cluster.kubeconfig,
        ca_cert=cluster.pki / "ca.crt",
        ca_key=cluster.pki / "ca.key",
        api_port=cluster.state().ports["kube-apiserver"],
        binaries=locate.resolve(BINARIES, report=reporter(sys.stderr)),
    )
    return RealSandbox(cluster=cluster, control_plane=plane)
