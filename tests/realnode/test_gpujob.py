"""The way of a device, from the extender's Binding into a container that really runs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail_sandbox import realnode
from tests.realnode.conftest import RealSandbox

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

NAMESPACE = "default"


def make_job(name: str, *, gpu: str, command: str) -> str:
    container = {
        "name": "main",
        "image": "dovetail.local/env:dev",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "env": [{"name": "MINE", "value": "job-$(DOVETAIL_JOB_ID)"}],
    }
    pod = {
        "tolerations": [{"key": "dovetail.dev/real-node", "operator": "Exists"}],
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    return json.dumps(
        {
            "apiVersion": "dovetail.dev/v1beta1",
            "kind": "GPUJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"gpu": gpu, "template": {"spec": pod}},
        }
    )


def job(sandbox: RealSandbox, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        sandbox.kubectl("get", "gpujob", name, f"--namespace={NAMESPACE}", "--output=json")
    )
    return found


def complete(sandbox: RealSandbox, name: str) -> dict[str, Any]:
    done = ("--for=condition=Complete", f"gpujob/{name}", "--timeout=90s")
    sandbox.kubectl("wait", *done, f"--namespace={NAMESPACE}")
    return job(sandbox, name)


def printed(sandbox: RealSandbox, name: str) -> dict[str, str]:
    logs = sandbox.kubectl("logs", f"--selector=dovetail.dev/job={name}", "--tail=-1", f"--namespace={NAMESPACE}")
    return dict(line.split("=", 1) for line in logs.splitlines())


@pytest.fixture(autouse=True)
def clean(sandbox: RealSandbox) -> Iterator[None]:
    """What a test leaves passes the audit; and the next begins with free devices."""
    yield
    try:
        sandbox.dovetail("audit")
    finally:
        sandbox.kubectl("delete", "gpujobs", "--all", "--wait=true", f"--namespace={NAMESPACE}")
        sandbox.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s", f"--namespace={NAMESPACE}")


def test_a_container_and_its_own_variables_have_the_jobs_number(sandbox: RealSandbox) -> None:
    """It comes from a label of the pod, and kubelet expands it in what follows."""
    sandbox.kubectl("create", "-f", "-", stdin=make_job("numbered", gpu="1(T4)", command="env"))
    number = complete(sandbox, "numbered")["status"]["number"]
    seen = printed(sandbox, "numbered")
    assert (seen["DOVETAIL_JOB_ID"], seen["MINE"]) == (str(number), f"job-{number}")


def test_a_container_prints_the_very_devices_that_the_status_names(sandbox: RealSandbox) -> None:
    sandbox.kubectl("create", "-f", "-", stdin=make_job("whole", gpu="2(T4)", command="env"))
    devices = complete(sandbox, "whole")["status"]["devices"]
    assert {device["node"] for device in devices} == {realnode.NODE_NAME}
    assert printed(sandbox, "whole")["NVIDIA_VISIBLE_DEVICES"].split(",") == [device["uuid"] for device in devices]
    assert len(devices) == 2


def test_two_fractions_share_a_card_and_print_it_both(sandbox: RealSandbox) -> None:
    names = ("left", "right")
    for name in names:
        sandbox.kubectl("create", "-f", "-", stdin=make_job(name, gpu="4G,0.5(T4)", command="env; sleep 3"))
    for name in names:
        (device,) = complete(sandbox, name)["status"]["devices"]
        assert printed(sandbox, name)["NVIDIA_VISIBLE_DEVICES"] == device["uuid"]
        assert (device["shareMilli"], device["memoryMiB"]) == (500, 4096)


def test_any_pods_containers_print_the_devices_that_each_was_given(sandbox: RealSandbox) -> None:
    """A plain pod with annotations alone: two containers with shares, and one that would take every card there is."""
    every = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    common = {"image": "dovetail.local/env:dev", "imagePullPolicy": "Never", "command": ["env"]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "plain",
            "namespace": NAMESPACE,
            "annotations": {"dovetail.dev/gpu.one": "4G,0.5(T4)", "dovetail.dev/gpu.two": "2G,0.25(T4)"},
        },
        "spec": {
            "restartPolicy": "Never",
            "tolerations": [{"key": "dovetail.dev/real-node", "operator": "Exists"}],
            "containers": [
                {"name": "one", **common},
                {"name": "none", "env": every, **common},
                {"name": "two", **common},
            ],
        },
    }
    sandbox.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    try:
        done = ("--for=jsonpath={.status.phase}=Succeeded", "pod/plain", "--timeout=90s")
        sandbox.kubectl("wait", *done, f"--namespace={NAMESPACE}")
        text = sandbox.kubectl("get", "pod", "plain", f"--namespace={NAMESPACE}", "--output=json")
        allocation = json.loads(json.loads(text)["metadata"]["annotations"]["dovetail.dev/allocation"])
        given = {each["index"]: [device["uuid"] for device in each["devices"]] for each in allocation["containers"]}
        said = {name: variables(sandbox, name) for name in ("one", "none", "two")}
    finally:
        sandbox.kubectl("delete", "pod", "plain", "--wait=true", f"--namespace={NAMESPACE}")
    assert {name: each["NVIDIA_VISIBLE_DEVICES"].split(",") for name, each in said.items()} == {
        "one": given[0], "none": ["void"], "two": given[2],
    }  # fmt: skip
    assert said["two"]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2048M"


def variables(sandbox: RealSandbox, container: str) -> dict[str, str]:
    logs = sandbox.kubectl("logs", "plain", f"--container={container}", f"--namespace={NAMESPACE}")
    return dict(line.split("=", 1) for line in logs.splitlines())


def test_the_agent_advertises_the_real_nodes_devices_again_after_kubelet_has_started_anew(
    sandbox: RealSandbox,
) -> None:
    sandbox.restart()
    path = "{.status.allocatable.dovetail\\.dev/gpu-milli}"
    advertised = ("get", "node", realnode.NODE_NAME, f"--output=jsonpath={path}")
    sandbox.wait_until(lambda: sandbox.kubectl(*advertised) in {"2k", "2000"}, deadline_s=60)
    sandbox.kubectl("create", "-f", "-", stdin=make_job("after", gpu="1(T4)", command="env"))
    devices = complete(sandbox, "after")["status"]["devices"]
    assert printed(sandbox, "after")["NVIDIA_VISIBLE_DEVICES"] == devices[0]["uuid"]
