"""One pod's life, with real processes and an API server that plays its part from a script."""

import asyncio
import base64
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import Resources
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.process import identity
from dovetail_local_node import pod_life, processes
from dovetail_local_node.environments import Environments
from dovetail_local_node.limits import choice, groups
from dovetail_local_node.limits.groups import Groups, Hierarchy
from dovetail_local_node.pod_life import Node, PodLife
from dovetail_local_node.pod_object import LocalPod, LocalPodSpec, LocalPodStatus, Mount
from dovetail_local_node.pods import lean
from dovetail_local_node.runs import Run, Runs
from tests.background import eventually
from tests.core.kube.api import Answer, Api, refusal
from tests.local_node import builders
from tests.local_node.builders import UID

PODS = "/api/v1/namespaces/default/pods"
STATUS = f"PATCH {PODS}/train-0-abcde/status"
JOB = "GET /apis/dovetail.dev/v1beta1/namespaces/default/gpujobs/train"
NOW = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
VISIBLE = names.ENV_VISIBLE_DEVICES
PATIENCE_SECONDS = 30.0
ENDED = {"Succeeded", "Failed"}
Live = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture
async def node(api: Api, tmp_path: Path) -> AsyncIterator[Node]:
    async with Client(Connection(server=api.url)) as client:
        yield Node(
            client=client,
            runs=Runs(folder=tmp_path / "runs"),
            environments=Environments(folder=tmp_path / "environments", own={"PATH": os.defpath}),
            place=builders.place(tmp_path),
            boot_id="this",
            now=lambda: NOW,
            extra={},
            groups=choice.none("a test"),
        )


@pytest.fixture
def live(api: Api, node: Node) -> Live:
    """Let a pod live until it has reported its end, and give what it reported."""

    async def until_reported(pod: LocalPod, *, of: Node = node, **options: Any) -> list[dict[str, Any]]:
        api.answer(STATUS, *[Answer(body={"metadata": {"name": "train-0-abcde"}})] * 3)
        life = PodLife(node=of, pod=pod, **options)
        living = asyncio.create_task(life.run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not [seen for seen in api.of(STATUS) if seen.body["status"]["phase"] in ENDED]:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.005)
            life.gone()
            await living
        return [seen.body["status"] for seen in api.of(STATUS)]

    return until_reported


def submitted_by(user: str) -> Answer:
    return Answer(body={"metadata": {"name": "train", "annotations": {names.USER: user}}})


def running(pod: LocalPod) -> LocalPod:
    return replace(pod, status=LocalPodStatus(phase="Running"))


def left_behind(node: Node, folder: Path, *, boot_id: str) -> Path:
    """What an earlier local node has left of a run whose process is gone."""
    output = folder / "train.log"
    output.touch()
    run = Run(uid=UID, namespace="default", name="train-0-abcde", boot_id=boot_id, output=str(output))
    started = node.runs.of(UID)
    started.mkdir(parents=True)
    (started / "run.json").write_bytes(msgspec.json.encode(run))
    (started / "started").write_text(f"{2**22 + 1} (sh) S " + "0 " * 18 + "77 0\n")
    return started


def run_by(node: Node, pid: int) -> None:
    """Make a process the shim of the run, as it would write itself."""
    (node.runs.of(UID) / "started").write_text(Path(f"/proc/{pid}/stat").read_text())


async def test_a_short_job_is_reported_once(api: Api, live: Live, tmp_path: Path) -> None:
    api.answer(JOB, submitted_by("alice"))
    (status,) = await live(builders.pod("sh", "-c", "exit 4"), unreported_seconds=600)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4


async def test_a_job_that_lasts_is_reported_when_it_runs_and_when_it_ends(api: Api, live: Live) -> None:
    api.answer(JOB, submitted_by("alice"))
    first, last = await live(builders.pod("sleep", "0.4"), unreported_seconds=0)
    assert (first["phase"], last["phase"]) == ("Running", "Succeeded")
    assert api.of(STATUS)[0].body["metadata"]["uid"] == UID


async def test_a_notice_of_preemption_reaches_a_job_that_runs(api: Api, node: Node) -> None:
    api.answer(JOB, submitted_by("alice"))
    api.answer(STATUS, *[Answer(body={"metadata": {"name": "train-0-abcde"}})] * 3)
    wait = "until [ -s $DOVETAIL_VOLUME_DOVETAIL_NOTICE/preempting-at ]; do sleep 0.05; done; exit 9"
    made = builders.noticed(builders.pod("sh", "-c", wait))
    life = PodLife(node=node, pod=made, unreported_seconds=0)
    living = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not api.of(STATUS):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)
        life.seen(builders.noticed(made, at="2026-11-27T05:00:00Z"))
        while api.of(STATUS)[-1].body["status"]["phase"] not in ENDED:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)
    life.gone()
    await living
    terminated = api.of(STATUS)[-1].body["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == 9


async def test_a_job_of_another_user_starts_nothing(api: Api, live: Live, node: Node, tmp_path: Path) -> None:
    api.answer(JOB, submitted_by("mallory"))
    (status,) = await live(builders.pod("touch", str(tmp_path / "touched")))
    assert (status["phase"], status["reason"]) == ("Failed", "ForeignUser")
    assert not (tmp_path / "touched").exists()


async def test_a_run_that_an_earlier_boot_wrote_and_never_started_starts(
    api: Api, live: Live, node: Node, tmp_path: Path
) -> None:
    api.answer(JOB, submitted_by("alice"))
    (left_behind(node, tmp_path, boot_id="earlier") / "started").unlink()
    (status,) = await live(builders.pod("sh", "-c", "exit 4"), unreported_seconds=600)
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4


async def test_a_run_of_an_earlier_boot_is_reported_as_ended_by_the_boot(
    api: Api, live: Live, node: Node, tmp_path: Path
) -> None:
    left_behind(node, tmp_path, boot_id="earlier")
    (status,) = await live(running(builders.pod("true")))
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (status["phase"], terminated["exitCode"]) == ("Failed", 255)
    assert terminated["message"] == "The machine was started again while the job ran."


@pytest.mark.parametrize(
    ("terminated", "boot_id", "expected"),
    [(True, "earlier", "Rebooted"), (False, "earlier", "Completed"), (True, "this", "Completed")],
)
async def test_a_run_that_a_shutdown_ended_by_sigterm_has_not_succeeded(
    live: Live, node: Node, tmp_path: Path, *, terminated: bool, boot_id: str, expected: str
) -> None:
    folder = left_behind(node, tmp_path, boot_id=boot_id)
    (folder / "ended").write_text("0\n")
    if terminated:
        (folder / "terminated").touch()
    (status,) = await live(running(builders.pod("true")))
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == expected


async def test_a_run_that_ended_while_no_local_node_ran_keeps_its_exit_code(
    live: Live, node: Node, tmp_path: Path
) -> None:
    (left_behind(node, tmp_path, boot_id="this") / "ended").write_text("9\n")
    (status,) = await live(running(builders.pod("true")))
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 9


async def test_a_run_whose_shim_was_killed_is_reported_as_killed(live: Live, node: Node, tmp_path: Path) -> None:
    left_behind(node, tmp_path, boot_id="this")
    statuses = await live(running(builders.pod("true")))
    terminated = statuses[-1]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["message"]) == (137, "It ended by SIGKILL.")


@pytest.mark.parametrize(("code", "reported"), [("143\n", 143), ("0\n", 143), ("9\n", 9), (None, 137)])
async def test_a_run_that_its_user_stopped_with_the_queue_has_failed(
    live: Live, node: Node, tmp_path: Path, code: str | None, reported: int
) -> None:
    folder = left_behind(node, tmp_path, boot_id="this")
    node.runs.mark_stopped(UID)
    if code is not None:
        (folder / "ended").write_text(code)
    status = (await live(running(builders.pod("true"))))[-1]
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (status["phase"], terminated["exitCode"], terminated["reason"]) == ("Failed", reported, "Stopped")


async def test_a_process_that_an_interrupted_stop_left_may_still_succeed(
    api: Api, live: Live, node: Node, tmp_path: Path
) -> None:
    left_behind(node, tmp_path, boot_id="this")
    node.runs.mark_stopped(UID)
    shim = await asyncio.create_subprocess_exec("sh", "-c", f"sleep 0.4; echo 0 > {node.runs.of(UID)}/ended")
    run_by(node, shim.pid)
    status = (await live(running(builders.pod("true"))))[-1]
    await shim.wait()
    assert status["phase"] == "Succeeded"


@pytest.mark.parametrize(("code", "expected"), [("137\n", "OOMKilled"), ("1\n", "OOMKilled"), ("0\n", "Completed")])
async def test_a_run_at_its_limit_of_memory_says_so_unless_it_succeeded(
    live: Live, node: Node, tmp_path: Path, code: str, expected: str
) -> None:
    (left_behind(node, tmp_path, boot_id="this") / "ended").write_text(code)
    node.runs.mark_out_of_memory(UID)
    (status,) = await live(running(builders.pod("true")))
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == expected


async def test_a_pod_that_runs_without_a_record_is_not_started_again(live: Live, tmp_path: Path) -> None:
    (status,) = await live(running(builders.pod("touch", str(tmp_path / "touched"))))
    assert (status["phase"], status["reason"]) == ("Failed", "Lost")
    assert not (tmp_path / "touched").exists()


async def test_output_that_cannot_be_written_is_a_sentence(api: Api, live: Live, node: Node, tmp_path: Path) -> None:
    api.answer(JOB, submitted_by("alice"))
    (tmp_path / "logs").write_text("in the way")
    (status,) = await live(builders.pod("true"))
    assert (status["phase"], status["reason"]) == ("Failed", "StartError")
    assert str(tmp_path / "logs") in status["message"]


async def test_nothing_of_a_run_stays_but_its_output(api: Api, live: Live, node: Node, tmp_path: Path) -> None:
    api.answer(JOB, submitted_by("alice"))
    await live(builders.pod("echo", "hello"))
    assert node.runs.all() == []
    assert (tmp_path / "logs" / "42.log").read_text() == "hello\n"


async def test_a_job_finds_its_volumes_and_they_go_with_its_pod(
    api: Api, live: Live, node: Node, tmp_path: Path
) -> None:
    api.answer(JOB, submitted_by("alice"))
    api.answer("GET /api/v1/namespaces/default/configmaps/lr", Answer(body={"data": {"lr.yaml": "lr: 0.1"}}))
    made = builders.pod("sh", "-c", 'cat /conf/lr.yaml; echo; ls -d "$DOVETAIL_VOLUME_CONF"')
    spec = msgspec.convert({"volumes": [{"name": "conf", "configMap": {"name": "lr"}}], "containers": []}, LocalPodSpec)
    container = replace(made.spec.containers[0], volume_mounts=[Mount(name="conf", mount_path="/conf")])
    made = replace(made, spec=replace(made.spec, volumes=spec.volumes, containers=[container]))
    (status,) = await live(made, unreported_seconds=600)
    folder = node.runs.volumes(UID) / "conf"
    assert status["phase"] == "Succeeded"
    assert (tmp_path / "logs" / "42.log").read_text() == f"lr: 0.1\n{folder}\n"
    assert not folder.exists()


@pytest.mark.parametrize(("asked", "usual"), [(1, 600), (None, 1), (0, 600)])
async def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(
    api: Api, node: Node, tmp_path: Path, asked: int | None, usual: int
) -> None:
    api.answer(JOB, submitted_by("alice"))
    api.answer(STATUS, *[Answer(body={"metadata": {"name": "train-0-abcde"}})] * 3)
    api.answer(f"DELETE {PODS}/train-0-abcde", Answer(body={}))
    made = builders.pod("sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done")
    made = replace(made, spec=replace(made.spec, termination_grace_period_seconds=usual))
    life = PodLife(node=node, pod=made)
    living = asyncio.create_task(life.run())
    output = tmp_path / "logs" / "42.log"
    async with asyncio.timeout(PATIENCE_SECONDS):
        await printed(output, "ready")
        meta = {"deletion_timestamp": "2026-01-31T18:00:00Z", "deletion_grace_period_seconds": asked}
        life.seen(replace(made, metadata=replace(made.metadata, **meta)))
        await living
    terminated = api.of(STATUS)[-1].body["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["message"]) == (137, "It ended by SIGKILL.")
    if asked != 0:
        await printed(output, "asked")
    (deletion,) = api.of(f"DELETE {PODS}/train-0-abcde")
    assert (deletion.body["preconditions"], deletion.body["gracePeriodSeconds"]) == ({"uid": UID}, 0)


@pytest.mark.parametrize("asked_first", [True, False], ids=["asked to end", "running"])
async def test_a_process_whose_pod_is_gone_is_killed_at_once_whatever_its_grace(
    api: Api, node: Node, tmp_path: Path, *, asked_first: bool
) -> None:
    """A forced deletion, also one that comes while the process has its grace period."""
    api.answer(JOB, submitted_by("alice"))
    api.answer(STATUS, *[Answer(body={"metadata": {"name": "train-0-abcde"}})] * 3)
    made = builders.pod("sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done")
    made = replace(made, spec=replace(made.spec, termination_grace_period_seconds=600))
    life = PodLife(node=node, pod=made)
    living = asyncio.create_task(life.run())
    output = tmp_path / "logs" / "42.log"
    async with asyncio.timeout(PATIENCE_SECONDS):
        await printed(output, "ready")
        if asked_first:
            life.seen(replace(made, metadata=replace(made.metadata, deletion_timestamp="2026-01-31T18:00:00Z")))
            await printed(output, "asked")
            assert not living.done()
        life.gone()
        await living
    assert (node.runs.read(UID), node.runs.process(UID)) == (None, None)
    assert api.of(f"DELETE {PODS}/train-0-abcde") == [], "what does not exist is not deleted"


async def test_a_pod_that_was_replaced_meanwhile_ends_without_a_report_and_without_a_deletion(
    api: Api, node: Node
) -> None:
    api.answer(JOB, submitted_by("alice"))
    api.answer(STATUS, refusal(409, reason="Conflict"))
    api.answer(f"DELETE {PODS}/train-0-abcde", refusal(409, reason="Conflict"))
    made = builders.pod("true")
    life = PodLife(node=node, pod=made, unreported_seconds=600)
    living = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await api.until(STATUS, count=1)
        life.seen(replace(made, metadata=replace(made.metadata, deletion_timestamp="2026-01-31T18:00:00Z")))
        await living
    assert node.runs.read(UID) is None


async def test_an_api_server_that_is_away_is_asked_again(api: Api, live: Live, tmp_path: Path) -> None:
    api.answer(JOB, refusal(500), refusal(503), submitted_by("alice"))
    (status,) = await live(builders.pod("sh", "-c", "exit 4"), unreported_seconds=600)
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4


async def test_a_reservation_runs_nothing_and_holds_its_devices_until_its_pod_is_deleted(
    api: Api, node: Node, tmp_path: Path
) -> None:
    api.answer(JOB, submitted_by("alice"))
    api.answer(STATUS, *[Answer(body={"metadata": {"name": "train-0-abcde"}})] * 2)
    made = builders.pod("touch", str(tmp_path / "touched"), labels={names.LABEL_RESERVATION: "true"})
    life = PodLife(node=node, pod=made, unreported_seconds=0)
    living = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await api.until(STATUS, count=1)
        assert not living.done()
        life.gone()
        await living
    first, last = (seen.body["status"] for seen in api.of(STATUS))
    assert (first["phase"], last["phase"]) == ("Running", "Failed")
    assert last["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert not (tmp_path / "touched").exists()


async def printed(output: Path, text: str) -> None:
    """Wait until a job has printed a text."""
    while text not in await asyncio.to_thread(lambda: (output.exists() and output.read_text()) or ""):  # noqa: ASYNC110 - a process writes it
        await asyncio.sleep(0.005)


async def test_a_report_that_is_on_its_way_is_answered_before_the_end_is_reported(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the pod could be Running for ever: the later write wins."""
    answered, over = asyncio.Event(), asyncio.Event()
    api.answer(JOB, submitted_by("alice"))
    pods = {"metadata": {"name": "train-0-abcde"}}
    api.answer(STATUS, Answer(body=pods, released=answered), Answer(body=pods))
    monkeypatch.setattr(processes, "reap", lambda _pid: over.set())
    life = PodLife(node=node, pod=builders.pod("sleep", "0.4"), unreported_seconds=0)
    living = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await over.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        assert [seen.body["status"]["phase"] for seen in api.of(STATUS)] == ["Running"]
        answered.set()
        await api.until(STATUS, count=2)
        life.gone()
        await living
    assert api.of(STATUS)[-1].body["status"]["phase"] == "Succeeded"


async def test_a_pod_that_is_deleted_before_it_began_starts_nothing(api: Api, node: Node) -> None:
    api.answer(f"DELETE {PODS}/train-0-abcde", Answer(body={}))
    made = builders.pod("true")
    deleted = replace(made, metadata=replace(made.metadata, deletion_timestamp="2026-01-31T18:00:00Z"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await PodLife(node=node, pod=deleted).run()
    assert [f"{seen.method} {seen.path}" for seen in api.seen] == [f"DELETE {PODS}/train-0-abcde"]


async def test_a_run_that_this_boot_wrote_and_did_not_start_is_not_made_again(
    api: Api, live: Live, node: Node, tmp_path: Path
) -> None:
    (left_behind(node, tmp_path, boot_id="this") / "started").unlink()
    (status,) = await live(builders.pod("true"), unreported_seconds=600)
    assert (status["phase"], api.of(JOB)) == ("Failed", []), "what it was to execute is gone"


async def test_what_the_kernel_counted_is_read_before_the_end_is_reported(
    live: Live, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def removed(_groups: object) -> None:
        (tmp_path / "group" / "memory.events").unlink()

    monkeypatch.setattr(groups, "end", removed)
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "memory.events").write_text("oom 1\noom_kill 1\n")
    folder = left_behind(node, tmp_path, boot_id="this")
    run = node.runs.read(UID)
    assert run is not None
    (folder / "run.json").write_bytes(msgspec.json.encode(replace(run, groups=(str(tmp_path / "group"),))))
    (folder / "ended").write_text("137\n")
    (status,) = await live(running(builders.pod("true")))
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"


async def test_a_run_has_begun_when_its_shim_wrote_so_whenever_that_is_reported(
    live: Live, node: Node, tmp_path: Path
) -> None:
    folder = left_behind(node, tmp_path, boot_id="this")
    (folder / "ended").write_text("0\n")
    for name, at in (("started", "2026-01-31T17:00:00Z"), ("ended", "2026-01-31T17:30:00Z")):
        seconds = datetime.fromisoformat(at).timestamp()
        os.utime(folder / name, (seconds, seconds))
    (status,) = await live(running(builders.pod("true")))
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert status["startTime"] == terminated["startedAt"] == "2026-01-31T17:00:00Z"
    assert terminated["finishedAt"] == "2026-01-31T17:30:00Z"


async def test_a_job_has_its_limits_the_nodes_umask_and_files_of_its_own(
    api: Api, live: Live, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = list[Path]()

    async def end(made: list[Path]) -> None:
        ended.extend(made)

    monkeypatch.setattr(groups, "end", end)
    (tmp_path / "parent").mkdir()
    hierarchy = Hierarchy(parent=tmp_path / "parent", settings=groups.version_2)
    limited = dataclasses.replace(node, groups=Groups(hierarchies=(hierarchy,), sentence=""), umask=0o077)
    api.answer(JOB, submitted_by("alice"))
    made = builders.pod("sh", "-c", "umask; echo problem >&2", annotations={names.ERROR_FILE: str(tmp_path / "err")})
    amounts = Resources(requests={"cpu": "1"}, limits={"memory": "64Mi"})
    container = replace(made.spec.containers[0], resources=amounts)
    await live(replace(made, spec=replace(made.spec, containers=[container])), of=limited, unreported_seconds=600)
    group = tmp_path / "parent" / f"pod{UID}"
    assert ended == [group]
    found = {name: (group / name).read_text() for name in ("memory.max", "cpu.weight", "cgroup.procs")}
    assert found == {"memory.max": str(64 << 20), "cpu.weight": "39", "cgroup.procs": "0"}
    assert (tmp_path / "logs" / "42.log").read_text().strip().endswith("077")
    assert (tmp_path / "err").read_text() == "problem\n"


@pytest.mark.parametrize(("uuids", "asked", "shown"), [("GPU-a", 1, "7"), (names.NO_DEVICES, 0, ""), ("", 0, "")])
async def test_the_driver_is_asked_for_numbers_at_the_start_of_a_job_with_devices(
    api: Api, live: Live, node: Node, tmp_path: Path, uuids: str, asked: int, shown: str
) -> None:
    asked_for = list[None]()

    async def read_numbers() -> dict[str, int]:
        asked_for.append(None)
        return {"GPU-a": 7}

    api.answer(JOB, submitted_by("alice"))
    made = builders.pod("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", env=[builders.variable(VISIBLE, uuids)])
    await live(made, of=dataclasses.replace(node, read_numbers=read_numbers), unreported_seconds=600)
    assert (len(asked_for), (tmp_path / "logs" / "42.log").read_text()) == (asked, f"{shown}\n")


async def test_an_account_that_acts_for_the_user_submits_jobs_that_run(api: Api, live: Live, node: Node) -> None:
    place = dataclasses.replace(node.place, accounts=("system:serviceaccount:default:user",))
    api.answer(JOB, submitted_by("system:serviceaccount:default:user"))
    (status,) = await live(builders.pod("true"), of=dataclasses.replace(node, place=place), unreported_seconds=600)
    assert status["phase"] == "Succeeded"


async def test_a_job_that_starts_after_the_notice_finds_it(api: Api, live: Live) -> None:
    api.answer(JOB, submitted_by("alice"))
    told = builders.pod("sh", "-c", "[ -s $DOVETAIL_VOLUME_DOVETAIL_NOTICE/preempting-at ]")
    (status,) = await live(builders.noticed(told, at="2026-11-27T05:00:00Z"), unreported_seconds=600)
    assert status["phase"] == "Succeeded"


async def test_everything_that_a_pod_needs_is_asked_for_in_its_namespace(api: Api, node: Node, tmp_path: Path) -> None:
    made = builders.pod("cat", "/keys/token")
    spec = msgspec.convert({"volumes": [{"name": "keys", "secret": {"secretName": "s"}}]}, LocalPodSpec)
    container = replace(made.spec.containers[0], volume_mounts=[Mount(name="keys", mount_path="/keys")])
    meta = replace(made.metadata, namespace="red", deletion_timestamp=None)
    made = replace(made, metadata=meta, spec=replace(made.spec, volumes=spec.volumes, containers=[container]))
    job, secret = JOB.replace("/default/", "/red/"), "GET /api/v1/namespaces/red/secrets/s"
    status, deletion = (path.replace("/default/", "/red/") for path in (STATUS, f"DELETE {PODS}/train-0-abcde"))
    api.answer(job, submitted_by("alice"))
    api.answer(secret, Answer(body={"data": {"token": base64.b64encode(b"\x00\xff").decode()}}))
    api.answer(status, Answer(body={"metadata": {"name": "train-0-abcde"}}))
    api.answer(deletion, Answer(body={}))
    life = PodLife(node=node, pod=made, unreported_seconds=600)
    living = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await api.until(status, count=1)
        life.seen(replace(made, metadata=replace(meta, deletion_timestamp="2026-01-31T18:00:00Z")))
        await living
    assert [f"{seen.method} {seen.path}" for seen in api.seen] == [job, secret, status, deletion]
    assert (tmp_path / "logs" / "42.log").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_is_not_started_again_and_its_files_go_with_it(
    api: Api, node: Node, tmp_path: Path, phase: str
) -> None:
    left_behind(node, tmp_path, boot_id="earlier")
    life = PodLife(node=node, pod=replace(builders.pod("true"), status=LocalPodStatus(phase=phase)))
    living = asyncio.create_task(life.run())
    await asyncio.sleep(0)
    assert not living.done(), "its log is there as long as its pod"
    assert node.runs.read(UID) is not None
    life.gone()
    await living
    assert (api.seen, node.runs.of(UID).exists()) == ([], False)


async def test_a_limit_that_was_reached_is_named(live: Live, node: Node, tmp_path: Path) -> None:
    (left_behind(node, tmp_path, boot_id="this") / "ended").write_text("137\n")
    node.runs.mark_out_of_memory(UID)
    made = builders.pod("true")
    amounts = Resources(requests={"memory": "1Gi"}, limits={"memory": "2Gi"})
    container = replace(made.spec.containers[0], resources=amounts)
    (status,) = await live(running(replace(made, spec=replace(made.spec, containers=[container]))))
    message = "It reached its limit of 2Gi of memory, and the kernel ended a process of it."
    assert status["containerStatuses"][0]["state"]["terminated"]["message"] == status["message"] == message


async def test_a_job_knows_where_its_output_begins_in_a_file_that_others_wrote_before(
    api: Api, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = list[Run](), Runs.write

    def noted(runs: Runs, run: Run, *, launch: Any) -> None:
        written.append(run)
        write(runs, run, launch=launch)

    monkeypatch.setattr(Runs, "write", noted)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "42.log").write_text("of an earlier queue\n")
    api.answer(JOB, submitted_by("alice"))
    await live(builders.pod("echo", "hello"), unreported_seconds=600)
    assert [(run.offset, run.output) for run in written] == [(20, str(tmp_path / "logs" / "42.log"))]


async def test_a_process_that_left_its_job_ends_with_it(api: Api, live: Live, tmp_path: Path) -> None:
    api.answer(JOB, submitted_by("alice"))
    script = f"setsid sh -c 'echo $$$$ > {tmp_path}/pid; exec sleep 600' & until [ -s {tmp_path}/pid ]; do :; done"
    await live(builders.pod("sh", "-c", script), unreported_seconds=600)
    left = int((tmp_path / "pid").read_text())
    await eventually(lambda: identity.identify(left) is None)


async def test_a_reservation_that_ends_while_its_life_begins_runs_nothing(
    api: Api, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answer(JOB, submitted_by("alice"))
    api.answer(STATUS, *[Answer(body={"metadata": {"name": "train-0-abcde"}})] * 2)
    made = builders.pod("sleep", "600", labels={names.LABEL_RESERVATION: "true"})
    life = PodLife(node=node, pod=made, unreported_seconds=0)

    async def ends_meanwhile(*_: Any, **__: Any) -> None:
        life.seen(lean(replace(made, status=replace(made.status, phase="Failed"))))

    monkeypatch.setattr(pod_life.volume_files, "fill", ends_meanwhile)
    living = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await api.until(STATUS, count=1)
        started = node.runs.process(made.metadata.uid)
        life.gone()
        await living
    assert started is None


async def test_a_reservation_has_no_cgroup(api: Api, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def create(*_: Any, **__: Any) -> tuple[Path, ...]:
        raise AssertionError

    monkeypatch.setattr(Groups, "create", create)
    api.answer(JOB, submitted_by("alice"))
    api.answer(STATUS, *[Answer(body={"metadata": {"name": "train-0-abcde"}})] * 2)
    life = PodLife(node=node, pod=builders.pod(labels={names.LABEL_RESERVATION: "true"}), unreported_seconds=0)
    living = asyncio.create_task(life.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await api.until(STATUS, count=1)
        life.gone()
        await living
    assert [seen.body["status"]["phase"] for seen in api.of(STATUS)] == ["Running", "Failed"]
