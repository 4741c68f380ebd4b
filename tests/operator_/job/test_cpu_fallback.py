"""Jobs that run on the CPU where there is no GPU for them."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job
from dovetail.queue.verdicts import Waits
from dovetail_operator.job.actions import CreateJob
from dovetail_operator.lifecycle.reconcile import reconcile
from tests.operator_.builders import LET_GO, NO_ROOM, make_job, make_pod, make_state, see

NOWHERE = Waits(key="uid-x", reason="ExceedsCapacity", message="Need 4 GPUs, the largest node has 2")


def test_where_no_gpu_could_ever_serve_it_the_job_runs_on_the_cpu() -> None:
    job = make_job(gpu=4, onNoGPU="RunOnCPU")
    outcome = reconcile(see(job, verdict=NOWHERE))
    (create,) = outcome.actions
    assert isinstance(create, CreateJob)
    (container,) = create.manifest["spec"]["template"]["spec"]["containers"]
    assert "resources" not in container or not container["resources"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert create.manifest["metadata"]["annotations"]["dovetail.dev/device"] == "cpu"
    assert "Need 4 GPUs" in outcome.status.message


@pytest.mark.parametrize(
    ("says", "spec", "verdict"),
    [
        ("GPUs that are busy are waited for", {"onNoGPU": "RunOnCPU"}, NO_ROOM),
        ("without the wish the job waits", {}, NOWHERE),
    ],
)
def test_it_waits(says: str, spec: dict[str, Any], verdict: Waits) -> None:
    outcome = reconcile(see(make_job(gpu=4, **spec), verdict=verdict))
    assert outcome.actions == (), says
    assert outcome.status.phase == "Queued", says


def test_the_status_says_what_it_runs_on() -> None:
    state = make_state(a=1)
    job = make_job(gpu=4, onNoGPU="RunOnCPU", status={"number": 7, "request": "4"})
    state.store.job_changed(job)
    manifest = next(a for a in reconcile(see(job, verdict=NOWHERE)).actions if isinstance(a, CreateJob)).manifest
    manifest["metadata"] |= {"uid": "uid-child", "resourceVersion": "20"}
    state.store.child_changed(msgspec.convert(manifest, Job, strict=False))
    state.store.pod_event("ADDED", make_pod(started=-5))
    seen = state.observe("team/x", now=see(job).now)
    assert seen is not None
    status = reconcile(seen).status
    assert (status.phase, status.device, status.gpus, status.request) == ("Running", "cpu", 0, "4")
    assert status.message.startswith("Runs on the CPU")


@pytest.mark.parametrize(("spec", "device"), [({"gpu": 1}, "cuda"), ({"resources": {"device": "cpu"}}, "cpu")])
def test_what_a_job_runs_on_is_said_of_every_job(spec: dict[str, Any], device: str) -> None:
    assert reconcile(see(make_job(**spec), verdict=LET_GO)).status.device == device
