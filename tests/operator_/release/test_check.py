"""The test of a release: what passes, and the one sentence of each failure."""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail import names
from dovetail.api import crd
from dovetail.api.resources import CRDS, GPUJOBS, LEASES
from dovetail_release import check
from tests.operator_.builders import make_job
from tests.operator_.release.objects import Objects

HOME = "dovetail-system"
SPEC = '{"gpu": "1", "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}'
LEADERS = ("dovetail-operator", "dovetail-extender")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_LEADER_SECONDS", 0.0)
    monkeypatch.setattr(check, "_POLL_SECONDS", 0.0)


def options(*words: str) -> argparse.Namespace:
    leaders = [f"--leader={each}" for each in LEADERS]
    return check.parser().parse_args([*leaders, f"--spec={SPEC}", "--timeout=0", *words])


def well(*, status: dict[str, Any] | None = None, user: str = "someone") -> Objects:
    """A release whose GPUJob gets this status at once."""
    cluster = Objects()
    for each in crd.crds():
        cluster.add(CRDS, each["metadata"]["name"], spec=each["spec"])
    now = datetime.now(UTC).isoformat()
    for name in LEADERS:
        lease = {"holderIdentity": "pod", "renewTime": now, "leaseDurationSeconds": 60}
        cluster.add(LEASES, name, namespace=HOME, spec=lease)
    cluster.created[GPUJOBS.plural] = {
        "annotations": {names.USER: user} if user else {},
        "status": {"phase": "Succeeded", "nodeList": "gpu-1"} if status is None else status,
    }
    return cluster


async def run(cluster: Objects, *words: str) -> list[str]:
    said: list[str] = []
    async with cluster.client() as client:
        await check.check(client, args=options(*words), say=said.append)
    return said


async def test_a_release_that_works_passes_and_keeps_no_gpujob() -> None:
    cluster = well()
    assert await run(cluster, "--users") == [
        "The 5 CRDs have all fields of this version.",
        "dovetail-operator runs and holds its Lease.",
        "dovetail-extender runs and holds its Lease.",
        "The webhook admits a GPUJob of someone.",
        "A GPUJob ran on gpu-1 and succeeded.",
    ]
    assert not cluster.names(GPUJOBS)


async def test_the_rest_of_an_interrupted_test_is_replaced() -> None:
    cluster = well()
    cluster.add(GPUJOBS, "dovetail-release-test", namespace=HOME, spec={}, status={"phase": "Failed"})
    assert (await run(cluster))[-1] == "A GPUJob ran on gpu-1 and succeeded."


async def test_a_queue_that_gives_a_reason_is_enough_where_no_gpu_is_free() -> None:
    cluster = well(status={"phase": "Queued", "reason": "Resources", "message": "Need 1 GPU, only 0 available"})
    assert (await run(cluster))[-1] == "The queue answers a GPUJob: Need 1 GPU, only 0 available"


def lose_the_lease(cluster: Objects) -> None:
    del cluster.by_path[LEASES.path(namespace=HOME, name="dovetail-extender")]


def age_the_lease(cluster: Objects) -> None:
    spec = cluster.by_path[LEASES.path(namespace=HOME, name="dovetail-extender")]["spec"]
    spec["renewTime"] = (datetime.now(UTC) - timedelta(seconds=90)).isoformat()


def lose_a_crd(cluster: Objects) -> None:
    del cluster.by_path[CRDS.path(name="gpuquotas.dovetail.dev")]


def age_a_crd(cluster: Objects) -> None:
    spec = cluster.by_path[CRDS.path(name="gpujobs.dovetail.dev")]["spec"]
    version = spec["versions"][0]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["preemptible"]


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (
            lose_the_lease,
            r"dovetail-extender: not running \(it has no Lease\)\. Look at: kubectl --namespace dovetail-sys",
        ),
        (age_the_lease, r"dovetail-extender: not running \(last seen .+ ago\)"),
        (lose_a_crd, r"The CRD gpuquotas\.dovetail\.dev is not installed"),
        (
            age_a_crd,
            r"The CRD gpujobs\.dovetail\.dev is of another version: it lacks v1beta1\.spec\.preemptible\.",
        ),
    ],
)
async def test_what_is_broken_is_named(break_it: Any, sentence: str) -> None:
    cluster = well()
    break_it(cluster)
    with pytest.raises(check.CheckFailed, match=sentence):
        await run(cluster)
    assert not cluster.names(GPUJOBS)


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({}, "The operator has not looked at a GPUJob for 0 s"),
        ({"phase": "Queued", "reason": "Evaluating"}, "A GPUJob was planned, but has not ended within 0 s: Queued"),
        ({"phase": "Starting", "message": "Waiting for a node"}, "has not ended within 0 s: Waiting for a node"),
        ({"phase": "Failed", "message": "exit code 1"}, "A GPUJob ended as Failed: exit code 1"),
    ],
)
async def test_a_gpujob_that_does_not_end_well_fails_the_test_and_is_deleted(
    status: dict[str, Any], sentence: str
) -> None:
    cluster = well(status=status)
    with pytest.raises(check.CheckFailed, match=sentence):
        await run(cluster)
    assert not cluster.names(GPUJOBS)


async def test_a_webhook_that_adds_no_user_fails_the_test() -> None:
    with pytest.raises(check.CheckFailed, match="The webhook does not complete GPUJobs"):
        await run(well(user=""), "--users")


async def test_a_refused_gpujob_fails_the_test_with_the_api_servers_words() -> None:
    cluster = well()
    cluster.refused.add(GPUJOBS.path(namespace=HOME))
    with pytest.raises(check.CheckFailed, match=r"A GPUJob is not admitted: .*no right to POST"):
        await run(cluster, "--users")


def test_fields_of_items_count_too() -> None:
    wanted = {"v1": {"properties": {"list": {"items": {"properties": {"name": {}, "size": {}}}}}}}
    found = {"v1": {"properties": {"list": {"items": {"properties": {"name": {}}}}}}}
    assert check.missing_fields(wanted, found=found) == ["v1.list.size"]
    assert check.missing_fields(wanted, found=wanted) == []


def test_a_spec_that_is_no_json_object_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--spec=[]")
    assert "--spec: must be a JSON object" in capsys.readouterr().err


def test_a_waiting_job_is_no_answer_before_the_first_cycle() -> None:
    assert check.judge(make_job(status={"phase": "Queued", "reason": "Evaluating"})) is None
