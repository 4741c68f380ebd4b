"""A gang of two containers on a real node: they find each other by MASTER_ADDR and add their numbers up."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.realnode.conftest import RealSandbox
from tests.realnode.host_python import with_python

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

# What torch.distributed's all_reduce does, over TCP: the first worker adds up and tells the sum.
ALL_REDUCE = """
import os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port, number = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), rank + 5
if rank == 0:
    with socket.create_server(("", port)) as server:
        callers = [server.accept()[0] for _ in range(size - 1)]
        total = number + sum(int(caller.recv(64)) for caller in callers)
        for caller in callers:
            caller.sendall(str(total).encode())
else:
    while True:
        try:
            call = socket.create_connection((address, port), timeout=30)
            break
        except OSError as error:
            print("not yet:", error)
            time.sleep(0.5)
    call.sendall(str(number).encode())
    total = int(call.recv(64))
print(f"rank={rank} sum={total} device={os.environ['NVIDIA_VISIBLE_DEVICES']}")
"""


@pytest.fixture(autouse=True)
def clean(sandbox: RealSandbox) -> Iterator[None]:
    yield
    sandbox.kubectl("delete", "gpujobs", "--all", "--wait=true")
    sandbox.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")


def gang(name: str, *, code: str, **spec: Any) -> str:
    container = {"name": "main", "image": "dovetail.local/env:dev", "imagePullPolicy": "Never"}
    pod = {
        "tolerations": [{"key": "dovetail.dev/real-node", "operator": "Exists"}],
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    template = {"spec": with_python(pod, code=code)}
    return json.dumps(
        {
            "apiVersion": "dovetail.dev/v1beta1",
            "kind": "GPUJob",
            "metadata": {"name": name},
            "spec": {"gpu": "1(T4)", "workers": 2, "template": template, **spec},
        }
    )


def printed(sandbox: RealSandbox, name: str, *, of: str = "") -> dict[str, dict[str, str]]:
    """What each worker printed last, by its rank; of those alone whose labels fit `of` as well."""
    lines = sandbox.kubectl("logs", f"--selector=dovetail.dev/job={name}{of}", "--tail=1").splitlines()
    told = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    return {each["rank"]: each for each in told}


def test_two_containers_meet_over_master_addr_and_add_their_numbers_up(sandbox: RealSandbox) -> None:
    sandbox.kubectl("create", "-f", "-", stdin=gang("meeting", code=ALL_REDUCE))
    sandbox.kubectl("wait", "--for=condition=Complete", "gpujob/meeting", "--timeout=120s")
    told = printed(sandbox, "meeting")
    assert {rank: each["sum"] for rank, each in told.items()} == {"0": "11", "1": "11"}
    assert told["0"]["device"] != told["1"]["device"]


def test_the_failure_of_one_container_ends_the_other_and_both_start_anew(sandbox: RealSandbox) -> None:
    """The second worker fails each time: once it is tried again with the first one, then the job has failed.

    The first goes on for long: an MPI job whose launcher has ended well has succeeded, whatever its workers do then.
    """
    code = """
import os, sys, time
print("rank=" + os.environ["RANK"], "mpi=" + open("/etc/mpi/hostfile").readline().split()[0])
if os.environ["RANK"] == "0":
    time.sleep(1000)
time.sleep(2)
sys.exit(7)
"""
    spec = {"backoffLimit": 1, "distributed": {"framework": "MPI"}}
    sandbox.kubectl("create", "-f", "-", stdin=gang("restarting", code=code, **spec))
    sandbox.kubectl("wait", "--for=condition=Failed", "gpujob/restarting", "--timeout=120s")
    status = json.loads(sandbox.kubectl("get", "gpujob", "restarting", "--output=json"))["status"]
    assert (status["attempt"], status["retries"]) == (2, 1)
    assert "Worker 1 failed" in status["attempts"][0]["message"]
    # The first worker's pod may be on its way out.
    told = printed(sandbox, "restarting", of=",batch.kubernetes.io/job-completion-index=1")
    assert told["1"]["mpi"] == "restarting-0.restarting"


def test_a_job_that_is_held_while_it_runs_goes_on_later_and_has_lost_no_try(sandbox: RealSandbox) -> None:
    """Its container is killed, which kubelet tells as a failure: it is none."""
    code = "import time; print('rank=0', flush=True); time.sleep(1000)"
    sandbox.kubectl("create", "-f", "-", stdin=gang("holding", code=code, workers=1))
    running = ("wait", "--for=jsonpath={.status.phase}=Running", "gpujob/holding", "--timeout=90s")
    sandbox.kubectl(*running)
    sandbox.kubectl("patch", "gpujob", "holding", "--type=merge", '--patch={"spec": {"suspend": true}}')
    sandbox.kubectl("wait", "--for=delete", "pods", "--selector=dovetail.dev/job=holding", "--timeout=60s")
    sandbox.kubectl("wait", "--for=condition=Suspended", "gpujob/holding", "--timeout=60s")
    sandbox.kubectl("patch", "gpujob", "holding", "--type=merge", '--patch={"spec": {"suspend": false}}')
    sandbox.kubectl(*running)
    status = json.loads(sandbox.kubectl("get", "gpujob", "holding", "--output=json"))["status"]
    assert status.get("retries", 0) == 0
