"""One bare sandbox with a real node and the images on it; the tests of a file run in their order.

Where the machine cannot have a real node, the tests are skipped with the reason.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_sandbox import bringup, realnode
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import reporter
from tests.installation import machine as machines
from tests.installation.machine import FLEET_TAINT, NAMESPACE, Machine

_NAME = "test-installation"
# A node without devices, and those of the stream of jobs, which have devices once one agent serves all simulated nodes.
_NODES = """
- {name: plain, count: 1, cpu: 1, memory: 1Gi}
- {name: fleet, count: 4, model: V100, devices: 8, memory_mib: 32768, cpu: 96, memory: 768Gi}
"""
_PROGRAMS = ("kubectl", "helm", "ctr", "kube-scheduler")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A cluster of one real node with the release's namespace, and nothing of Dovetail but its images."""
    if reason := realnode.capable():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("installation")
    nodes = folder / "nodes.yaml"
    nodes.write_text(_NODES)
    archives = machines.built("operator", "extender", "agent", "webhook", "certificates", "gateway")
    cluster = bringup.up(_NAME, report=reporter(sys.stderr), nodes_file=nodes, real_node=True, bare=True)
    try:
        made = Machine(cluster=cluster, programs=locate.resolve(_PROGRAMS, report=reporter(sys.stderr)), folder=folder)
        _prepare(made, archives=archives)
        yield made
    finally:
        cluster.down()


def _prepare(machine: Machine, *, archives: list[Path]) -> None:
    machines.load(machine, archives=archives)
    # What the chart installs runs here and not on the simulated node, where no image exists.
    machine.kubectl("taint", "node", realnode.NODE_NAME, "dovetail.dev/real-node-")
    machine.kubectl("cordon", "plain-0")
    machine.kubectl("taint", "nodes", "--selector=dovetail.dev/gpu-model=V100", f"{FLEET_TAINT}=:NoSchedule")
    machine.kubectl("create", "namespace", NAMESPACE)
    # Every pod of the chart must comply with it.
    machine.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    for name in ("history", "samples"):
        machine.kubectl("create", "-f", "-", stdin=machines.make_volume(name, folder=machine.folder / name))
    machine.before.update(machine.names())
