"""What a container really prints: read, followed, and kept when the job and its pods are gone."""

import json

import pytest

from tests.realnode.conftest import RealSandbox
from tests.realnode.test_gpujob import clean, complete, make_job

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

__all__ = ["clean"]


def make_brief_job(name: str, *, command: str) -> str:
    job = json.loads(make_job(name, gpu="1(T4)", command=command))
    job["spec"]["ttlSecondsAfterFinished"] = 0
    return json.dumps(job)


def test_the_log_is_read_while_the_pod_is_there_and_its_last_lines_are_kept(sandbox: RealSandbox) -> None:
    script = "for n in $(seq 1 300); do echo line $n; done"
    sandbox.kubectl("create", "-f", "-", stdin=make_job("talks", gpu="1(T4)", command=script))
    complete(sandbox, "talks")
    assert sandbox.dovetail("gjob", "log", "talks", "--tail", "2") == "line 299\nline 300\n"
    assert sandbox.dovetail("gjob", "log", "-f", "talks").splitlines()[0] == "line 1"

    sandbox.kubectl("create", "-f", "-", stdin=make_brief_job("brief", command=script))
    sandbox.kubectl("wait", "--for=delete", "gpujob/brief", "--timeout=90s")
    kept = sandbox.dovetail("gjob", "log", "brief").splitlines()
    assert (len(kept), kept[-1]) == (100, "line 300")


def test_a_command_runs_in_the_container_of_a_job_that_runs(sandbox: RealSandbox) -> None:
    sandbox.kubectl("create", "-f", "-", stdin=make_job("stays", gpu="1(T4)", command="sleep 600"))
    sandbox.kubectl("wait", "--for=jsonpath={.status.phase}=Running", "gpujob/stays", "--timeout=90s")
    said = sandbox.dovetail("gjob", "attach", "stays", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
    assert said.startswith("GPU-")
