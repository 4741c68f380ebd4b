"""Where a plugin serves a real kubelet's node, the ledger has the very devices that kubelet gave."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail_agent.devices.simulated.provider import device_uuid
from dovetail_sandbox import realnode
from tests.realnode.conftest import RealSandbox
from tests.realnode.device_plugin import RESOURCE, DevicePlugin, plugged_in
from tests.realnode.test_gpujob import make_job, printed

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

NODE = realnode.NODE_NAME
CARDS = [device_uuid(NODE, index=index) for index in range(2)]


@pytest.fixture
def plugin(sandbox: RealSandbox) -> Iterator[DevicePlugin]:
    """The real node as a vendor's; in the end it is made anew, for kubelet would remember the plugin for minutes."""
    sandbox.kubectl("label", "node", NODE, "dovetail.dev/managed-")
    with plugged_in(sandbox.kubelet / "device-plugins", ids=CARDS) as plugin:
        try:
            yield plugin
            sandbox.kubectl("delete", "gpujobs", "--all", "--wait=true", "--namespace=default")
        finally:
            sandbox.restart()


@pytest.fixture
def agent(sandbox: RealSandbox) -> Iterator[None]:
    """The node's own agent, as the DaemonSet runs it: user 0 without capabilities."""
    sandbox.cluster.stop("agent")
    socket = sandbox.kubelet / "pod-resources" / "kubelet.sock"
    process = subprocess.Popen(
        [
            *("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"),
            *(sys.executable, "-m", "dovetail_agent.main", "--provider=simulated", "--metrics-port=0"),
            *(f"--node={NODE}", f"--pod-resources={socket}"),
        ],
        env=os.environ | {"KUBECONFIG": str(sandbox.control_plane.kubeconfig)},
    )
    try:
        yield
    finally:
        process.terminate()
        code = process.wait(60)
        sandbox.cluster.start("agent")
    assert code == 0


def read(sandbox: RealSandbox, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sandbox.kubectl("get", *what, "--namespace=default", "--output=json"))
    return found


def devices_of(sandbox: RealSandbox, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(sandbox, "gpujob", job).get("status", {}).get("devices", [])
    return found


def test_the_devices_that_kubelet_gave_reach_report_job_and_audit(
    sandbox: RealSandbox, plugin: DevicePlugin, agent: None
) -> None:
    sandbox.wait_until(lambda: read(sandbox, "node", NODE)["status"]["allocatable"].get(RESOURCE) == "2", deadline_s=60)
    sandbox.kubectl("create", "-f", "-", stdin=make_job("by-plugin", gpu="1(T4)", command="env; sleep 3600"))
    sandbox.wait_until(lambda: bool(devices_of(sandbox, "by-plugin")), deadline_s=60)

    (device,) = devices_of(sandbox, "by-plugin")
    assert [device["uuid"]] == plugin.allocated[0]
    assert (device["node"], device["index"]) == (NODE, CARDS.index(device["uuid"]))
    # kubelet gives the device before it starts the container.
    ready = ("--for=condition=Ready", "pods", "--selector=dovetail.dev/job=by-plugin", "--namespace=default")
    sandbox.kubectl("wait", *ready, "--timeout=60s")
    sandbox.wait_until(lambda: "NVIDIA_VISIBLE_DEVICES" in printed(sandbox, "by-plugin"))
    assert printed(sandbox, "by-plugin")["NVIDIA_VISIBLE_DEVICES"] == device["uuid"]
    report = read(sandbox, "gpunode", NODE)["status"]
    pod = read(sandbox, "pods", "--selector=dovetail.dev/job=by-plugin")["items"][0]["metadata"]
    assert report["assignments"] == [
        {"uid": pod["uid"], "namespace": "default", "name": pod["name"], "devices": [device["uuid"]]}
    ]
    conditions = {each["type"]: each["status"] for each in report["conditions"]}
    assert conditions["PodResources"] == "True"
    sandbox.dovetail("audit")
