"""Helm installs the chart on a real node: every component is a container, and a job runs. In this order."""

import pytest

from dovetail_sandbox import realnode
from tests.installation.machine import Machine, make_job, timed

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

COMPONENTS = {"agent", "certificates", "operator", "scheduler", "webhook"}


def test_helm_install_waits_until_every_component_is_ready(machine: Machine) -> None:
    with timed("helm install --wait"):
        done = machine.upgrade()
    assert done.returncode == 0, f"{done.stderr}\n{machine.state()}"
    pods = machine.objects("pods")
    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in pods} == COMPONENTS
    for pod in pods:
        assert pod["spec"]["nodeName"] == realnode.NODE_NAME
        assert all(each["ready"] for each in pod["status"]["containerStatuses"]), pod["metadata"]["name"]


def test_a_job_gets_devices_and_ends(machine: Machine) -> None:
    machine.until(lambda: advertised(machine) == "2k", what="the agent advertises two devices")
    machine.kubectl("create", "-f", "-", stdin=make_job("first", gpu="2(T4)"))
    with timed("a job of two devices"):
        machine.kubectl("wait", "--for=condition=Complete", "gpujob/first", "--timeout=120s", "--namespace=default")
    job = machine.get("gpujob", "first", namespace="default")
    printed = machine.kubectl("logs", "--selector=dovetail.dev/job=first", "--tail=-1", "--namespace=default")
    seen = dict(line.split("=", 1) for line in printed.splitlines())["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert seen == [device["uuid"] for device in job["status"]["devices"]]


def advertised(machine: Machine) -> str:
    node = machine.get("node", realnode.NODE_NAME)
    return str(node["status"]["allocatable"].get("dovetail.dev/gpu-milli", ""))
