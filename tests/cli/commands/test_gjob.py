"""One job: shown, changed, repeated, read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJobSpec, Measured, MemoryUse, Preemption, ReservationSpec, Tasks
from dovetail.formats.timestamps import moment
from dovetail.kube.errors import Forbidden
from dovetail.query.errors import InvalidQueryError
from dovetail.query.jobs.selection import parse_one
from dovetail_cli.app import run
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import details, job_events, renew_lease, resubmit, update
from dovetail_cli.submit import create
from dovetail_cli.ui import times
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError
from tests.cli.builders import NOW, ago, make_job
from tests.cli.jobs.test_history import asked, script
from tests.cli.ui.test_live_screen import KUBECONFIG
from tests.core.kube.api import Answer, Api, refusal
from tests.core.query.jobs.test_records import record

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"


def shown(job: Any) -> str:
    if hasattr(job, "status"):
        return details.text(details.sections(job, now=times.utc_now()))
    return details.text(details.recorded_sections(job))


def listed(*jobs: Any) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "1"}, "items": [values_of(job) for job in jobs]})


def test_a_job_that_waits_is_shown_with_its_reason_and_place() -> None:
    queue = {"position": 2, "estimatedStart": ago(hours=-1), "basis": "by time limits"}
    job = make_job("train", number=7, phase="Queued", reason="Resources", message="Need 4 GPUs, only 1 available")
    status = msgspec.structs.replace(
        job.status, queue=msgspec.convert(queue, type(job.status).__annotations__["queue"])
    )
    text = shown(msgspec.structs.replace(job, status=status))
    for line in ("JobId=7", "JobState=Queued", "Reason=Resources", "Position=2", "EstimatedStart=2026-11-21T13:00:00Z"):
        assert f"  {line}\n" in text
    assert "Place" not in text


def test_a_job_that_runs_is_shown_with_its_devices() -> None:
    job = make_job(number=7, phase="Running", nodes=["a"], devices=[("a", 1, 500)], start_time=ago(hours=1))
    assert "Worker0=a:1 GPU-a-1 share=0.5 memory=1024MiB" in shown(job)


def test_a_job_that_runs_without_the_gpus_that_it_asked_for_is_shown_so() -> None:
    job = make_job(number=7, phase="Running", request="4(H100)", device="cpu", nodes=["a"], start_time=ago(hours=1))
    assert "  Gpus=4(H100)\n  Device=cpu\n" in shown(job)


def test_of_a_job_that_is_gone_its_record_is_shown() -> None:
    text = shown(record(waitSeconds=90, gpuSeconds=3600))
    assert "its object is gone" in text
    assert "  WaitTime=00:01:30\n" in text
    assert "  GpuHours=1.000" in text


def test_the_tasks_of_an_array_and_who_made_way_for_whom_are_shown() -> None:
    array = make_job(phase="Running", tasks=Tasks(total=9, running=2, waiting=4, failed=3, failed_indexes="0,4-5"))
    assert "Tasks\n  Total=9\n  Waiting=4\n  Running=2\n  Succeeded=0\n  Failed=3 (0,4-5)" in shown(array)
    victim = make_job(phase="Running", preemption=Preemption(at=ago(seconds=-20), message="Is preempted for big"))
    assert "Preemption\n  EndsAt=2026-11-21T12:00:20Z\n  Why=Is preempted for big" in shown(victim)


EVENTS = "/api/v1/namespaces/default/events"
HAPPENED = [
    {"reason": "Running", "message": "Running on a", "type": "Normal", "lastTimestamp": "2026-11-21T11:00:05Z"},
    {"reason": "Resources", "message": "Need 4 GPUs", "type": "Normal", "eventTime": "2026-11-21T11:00:01.123456Z",
     "count": 3},
]  # fmt: skip


async def test_what_has_happened_to_a_job_is_shown_from_the_first_event_on(api: Api, cluster: Cluster) -> None:
    job = make_job(number=7, phase="Running", nodes=["a"])
    api.answer(f"GET {EVENTS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": HAPPENED}))
    events = await job_events.events_of(cluster, job=job)
    assert details.shown(job, events=events, now=NOW).endswith(
        "Events\n  2026-11-21T11:00:01Z  Resources: Need 4 GPUs (×3)\n  2026-11-21T11:00:05Z  Running: Running on a"
    )
    (seen,) = api.of(f"GET {EVENTS}")
    assert seen.query["fieldSelector"] == f"involvedObject.uid={job.metadata.uid}"


async def test_events_alone_are_a_table_or_those_of_rest(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {EVENTS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": HAPPENED}))
    events = await job_events.events_of(cluster, job=make_job(number=7, phase="Running"))
    wanted = [("2026-11-21T11:00:01Z", "Resources", 3), ("2026-11-21T11:00:05Z", "Running", 1)]
    for found in (
        json.loads(job_events.shown(events, form="json")),
        yaml.safe_load(job_events.shown(events, form="yaml")),
    ):
        assert [(each["at"], each["reason"], each["count"]) for each in found["items"]] == wanted
    head, first, _ = job_events.shown(events, form="table").splitlines()
    assert head.split() == ["AT", "TYPE", "REASON", "COUNT", "MESSAGE"]
    assert first.split() == ["2026-11-21T11:00:01Z", "Normal", "Resources", "3", "Need", "4", "GPUs"]


async def test_who_may_not_list_events_sees_the_job_all_the_same(api: Api, cluster: Cluster) -> None:
    job = make_job(number=7, phase="Running", nodes=["a"])
    api.answer(f"GET {EVENTS}", refusal(403), refusal(403))
    events = await job_events.events_or_none(cluster, job=job)
    assert events is None
    assert "not shown: that takes the right to list events" in details.shown(job, events=events, now=NOW)
    with pytest.raises(Forbidden):
        await job_events.events_of(cluster, job=job)


def test_a_job_of_which_no_event_is_left_has_no_such_section() -> None:
    assert "Events" not in details.shown(make_job(number=7, phase="Running"), events=[], now=NOW)


@pytest.mark.parametrize("word", ["1-3", "1,2", "0", "1..2"])
def test_one_job_is_named_by_one_number_or_name(word: str) -> None:
    with pytest.raises(InvalidQueryError):
        parse_one(word, field="JOB")


async def test_a_job_that_never_was_is_missing(api: Api, cluster: Cluster) -> None:
    script(api, asked(answered=True))
    with pytest.raises(MissingError, match="no job 7"):
        await details.remembered(cluster, wanted=parse_one("7", field="JOB"))


def test_what_update_changes_is_what_it_was_told() -> None:
    nothing: dict[str, Any] = dict.fromkeys(("priority", "time", "begin", "max_retries", "max_concurrent"))
    wanted = update.updated(**nothing | {"priority": 20, "time": "90:00", "max_retries": 0})
    assert wanted == {"priority": 20, "activeDeadlineSeconds": 5400, "backoffLimit": 0}
    none = update.updated(**nothing | {"time": "none", "begin": "none"})
    assert none == {"activeDeadlineSeconds": None, "beginTime": None}
    with pytest.raises(UsageError, match="say what to change"):
        update.updated(**nothing)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"array": {"indexes": "0-9"}}, {"array": {"parallelism": 3}}),
        ({"array": {"indexes": "0-9", "parallelism": 8}}, {"array": {"parallelism": 3}}),
        ({"array": {"indexes": "0-9:2%8"}}, {"array": {"indexes": "0-9:2%3"}}),
        ({"sweep": {"parameters": [{"name": "lr", "values": ["1"]}]}}, {"sweep": {"parallelism": 3}}),
        ({"group": "g"}, {"maxConcurrent": 3}),
        ({"group": "g", "maxConcurrent": 8, "array": {"indexes": "0-9"}}, {"maxConcurrent": 3}),
        ({"group": "g", "array": {"indexes": "0-9%4"}}, {"array": {"indexes": "0-9%3"}}),
    ],
)
def test_how_many_tasks_run_at_a_time_is_changed_where_the_job_says_it(spec: Any, fields: Any) -> None:
    wanted = update.updated(priority=5, time=None, begin=None, max_retries=None, max_concurrent=3)
    assert callable(wanted)
    job = msgspec.structs.replace(make_job(), spec=msgspec.convert(spec, GPUJobSpec))
    assert wanted(job) == {"priority": 5, **fields}


async def test_a_job_without_tasks_is_told_so_and_not_changed_by_half(api: Api, cluster: Cluster) -> None:
    wanted = update.updated(priority=5, time=None, begin=None, max_retries=None, max_concurrent=3)
    told, refused = await update._change(cluster, job=make_job(number=7, phase="Queued"), fields=wanted, done="updated")
    assert refused
    assert told.startswith("Job 7 is neither an array nor a sweep, and in no group: --max-concurrent is about tasks")
    assert not api.of(f"PATCH {JOBS}/train")


def test_a_job_joins_a_group_with_its_limit_and_leaves_it_without() -> None:
    nothing: dict[str, Any] = dict.fromkeys(("priority", "time", "begin", "max_retries", "max_concurrent"))
    joins = update.updated(**nothing | {"max_concurrent": 2}, group="nightly")
    assert callable(joins)
    assert joins(make_job()) == {"group": "nightly", "maxConcurrent": 2}
    assert update.updated(**nothing, group="none") == {"group": None, "maxConcurrent": None}
    with pytest.raises(UsageError, match='--group "Nightly": write up to 63 of'):
        update.updated(**nothing, group="Nightly")


@pytest.mark.parametrize(("text", "value"), [("Never", "Never"), ("Restart", "Restart"), ("none", None)])
def test_whether_a_job_may_move_is_changed_while_it_waits_or_runs(text: str, value: str | None) -> None:
    nothing: dict[str, Any] = dict.fromkeys(("priority", "time", "begin", "max_retries", "max_concurrent"))
    assert update.updated(**nothing, moves=text) == {"moves": value}
    with pytest.raises(UsageError, match='--moves "often": allowed are Never, Restart, none'):
        update.updated(**nothing, moves="often")


@pytest.mark.parametrize("phase", ["Starting", "Running"])
async def test_a_job_that_has_begun_is_given_no_time_to_begin(api: Api, cluster: Cluster, phase: str) -> None:
    job = make_job(number=7, phase=phase)
    for option, wanted in (
        ("--at", update.released("now+1h")),
        ("--begin", update.updated(priority=5, time=None, begin="now+1h", max_retries=None, max_concurrent=None)),
    ):
        told = f"Job 7 has begun already: {option} is about jobs that wait"
        assert await update._change(cluster, job=job, fields=wanted, done="changed") == (told, True)
    assert not api.of(f"PATCH {JOBS}/train")


def test_a_job_that_waits_is_given_a_time_to_begin_beside_what_else_changes() -> None:
    wanted = update.updated(priority=5, time=None, begin="2036-01-01T00:00Z", max_retries=None, max_concurrent=None)
    assert callable(wanted)
    assert wanted(make_job(phase="Held")) == {"priority": 5, "beginTime": "2036-01-01T00:00:00Z"}
    released = update.released("2036-01-01T00:00Z")
    assert callable(released)
    assert released(make_job(phase="Held")) == {"suspend": False, "beginTime": "2036-01-01T00:00:00Z"}


async def test_a_change_is_told_and_a_refusal_too(api: Api, cluster: Cluster) -> None:
    job = make_job(number=7, phase="Running")
    api.answer(f"PATCH {JOBS}/train", Answer(body=values_of(job)), refusal(422, message="gpu is immutable"))
    assert await update._change(cluster, job=job, fields={"suspend": True}, done="held") == ("Job 7 held.", False)
    assert await update._change(cluster, job=job, fields={"gpu": 2}, done="updated") == (
        "Job 7: gpu is immutable",
        True,
    )
    assert [seen.body for seen in api.of(f"PATCH {JOBS}/train")] == [{"spec": {"suspend": True}}, {"spec": {"gpu": 2}}]


async def test_a_job_that_has_ended_is_not_changed(cluster: Cluster) -> None:
    done = make_job(number=7, phase="Failed")
    sentence = "Job 7 has ended already (Failed)"
    assert await update._change(cluster, job=done, fields={"suspend": True}, done="held") == (sentence, True)


def reserved(**status: Any) -> Any:
    job = make_job("notebook", number=7, **status)
    return msgspec.structs.replace(job, spec=GPUJobSpec(gpu="1", reservation=ReservationSpec(duration_seconds=3600)))


async def test_a_reservation_is_renewed_from_now_on(api: Api, cluster: Cluster) -> None:
    job, now = reserved(phase="Running", start_time=ago(hours=1)), moment(ago())
    assert now is not None
    api.answer(f"PATCH {JOBS}/notebook", Answer(body=values_of(job)), Answer(body=values_of(job)))
    told = "Job 7 renewed: it holds its devices until"
    assert await renew_lease.renewed(cluster, job=job, seconds=None, now=now) == f"{told} {ago(hours=-1)}."
    assert await renew_lease.renewed(cluster, job=job, seconds=7200, now=now) == f"{told} {ago(hours=-2)}."
    leases = [seen.body["spec"]["reservation"] for seen in api.of(f"PATCH {JOBS}/notebook")]
    assert leases == [{"renewTime": ago()}, {"renewTime": ago(), "durationSeconds": 7200}]


async def test_a_reservation_that_waits_is_told_that_its_time_has_not_begun(api: Api, cluster: Cluster) -> None:
    job = reserved(phase="Queued")
    api.answer(f"PATCH {JOBS}/notebook", Answer(body=values_of(job)))
    said = await renew_lease.renewed(cluster, job=job, seconds=7200, now=times.utc_now())
    assert said == "Job 7 renewed: it holds its devices for 2h00m once it has started."


async def test_only_reservations_that_have_not_ended_are_renewed(api: Api, cluster: Cluster) -> None:
    with pytest.raises(CommandError, match="Job 7 is no reservation"):
        await renew_lease.renewed(cluster, job=make_job(number=7, phase="Running"), seconds=None, now=times.utc_now())
    with pytest.raises(CommandError, match=r"Job 7 has ended already \(TimedOut\): gjob redo 7"):
        await renew_lease.renewed(cluster, job=reserved(phase="TimedOut"), seconds=None, now=times.utc_now())
    api.answer(f"PATCH {JOBS}/notebook", refusal(403, message="no"))
    with pytest.raises(CommandError, match="Job 7"):
        await renew_lease.renewed(cluster, job=reserved(phase="Running"), seconds=None, now=times.utc_now())


@pytest.mark.parametrize("text", ["0", "-1h", "2 hours", "", "99999d", "0.5s"])
def test_a_renewal_lasts_a_second_at_least(text: str) -> None:
    with pytest.raises(UsageError, match="--for"):
        renew_lease.whole_seconds(text)


def test_a_job_is_repeated_as_it_was_written_but_not_held_or_cancelled() -> None:
    job = make_job("train-2", number=7, phase="Cancelled")
    meta = msgspec.structs.replace(job.metadata, generate_name="train-", annotations={"dovetail.dev/user": "ada"})
    spec = msgspec.structs.replace(job.spec, suspend=True, cancel=True, begin_time=ago(hours=1))
    again = resubmit.again(msgspec.structs.replace(job, metadata=meta, spec=spec))
    assert (again.metadata.name, again.metadata.annotations, again.status.phase) == ("train", {}, None)
    assert again.spec == job.spec


def test_a_reservation_is_repeated_with_a_lease_of_its_own() -> None:
    job = reserved(phase="TimedOut")
    lease = ReservationSpec(duration_seconds=3600, renew_time=ago(hours=2))
    again = resubmit.again(msgspec.structs.replace(job, spec=GPUJobSpec(gpu="1", reservation=lease)))
    assert again.spec.reservation == ReservationSpec(duration_seconds=3600)
    assert "template" not in create.as_manifest(again)["spec"]


def test_gjob_alone_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gjob", arguments=[], prog="gjob") == 2
    said = capsys.readouterr().out
    assert all(f" {word} " in said for word in ("show", "log", "hold", "release", "update", "redo", "attach"))


def test_a_task_that_is_done_once_more_is_no_task_of_its_array() -> None:
    task = make_job("arr-t1")
    labels = {"team": "vision", "dovetail.dev/array": "arr", "dovetail.dev/task": "1"}
    task = msgspec.structs.replace(task, metadata=msgspec.structs.replace(task.metadata, labels=labels))
    assert resubmit.again(task).metadata.labels == {"team": "vision"}


@pytest.mark.parametrize(
    ("phase", "tasks", "may"),
    [("Queued", None, True), ("Held", None, True), ("Starting", None, False), ("Running", None, False),
     ("Running", Tasks(total=9, running=2, waiting=7), True)],
)  # fmt: skip
def test_a_begin_time_is_for_what_waits_also_the_tasks_of_an_array_that_runs(
    phase: str, tasks: Tasks | None, may: bool
) -> None:
    job = make_job(number=7, phase=phase, tasks=tasks)
    fields = update.released("2100-01-01T00:00")
    assert callable(fields)
    if may:
        found = fields(job)
        assert (found["suspend"], str(found["beginTime"])[:4]) == (False, "2100")
    else:
        with pytest.raises(CommandError, match="has begun already: --at is about jobs that wait"):
            fields(job)


def test_a_job_that_is_repeated_keeps_the_name_that_people_gave_it() -> None:
    job = make_job("ete-1a2b")
    annotations = {"dovetail.dev/display-name": "Été", "dovetail.dev/user": "ada", "other": "x"}
    job = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, annotations=annotations))
    assert resubmit.again(job).metadata.annotations == {"dovetail.dev/display-name": "Été"}


@pytest.mark.parametrize(
    ("words", "refused", "raised", "said"),
    [
        (["1", "2"], [], None, ["Job 1 held.", "Job 2 held."]),
        (["1", "9"], [], MissingError, ["Job 1 held."]),
        (["1", "2"], ["second"], CommandError, ["Job 1 held."]),
        # What was refused is the error, also beside a job that is missing.
        (["1", "2", "9"], ["second"], CommandError, ["Job 1 held."]),
    ],
)
async def test_each_job_is_changed_whatever_becomes_of_the_others(
    api: Api,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    refused: list[str],
    raised: type[CommandError] | None,
    said: list[str],
) -> None:
    jobs = [make_job(name, number=at, phase="Queued") for at, name in enumerate(("first", "second"), start=1)]
    api.answer(f"GET {JOBS}", listed(*jobs))
    for job in jobs:
        name = job.metadata.name
        api.answer(
            f"PATCH {JOBS}/{name}", refusal(422, message="no") if name in refused else Answer(body=values_of(job))
        )
    (tmp_path / "kubeconfig").write_text(KUBECONFIG.format(url=api.url))

    def change() -> None:
        update.change(
            words, fields={"suspend": True}, done="held", kubeconfig=str(tmp_path / "kubeconfig"), context=None,
            namespace=None,
        )  # fmt: skip

    if raised is None:
        await asyncio.to_thread(change)
    else:
        with pytest.raises(raised) as caught:
            await asyncio.to_thread(change)
        assert type(caught.value) is raised
    assert capsys.readouterr().out.splitlines() == said


def wide(**status: Any) -> Any:
    """A job that used a tenth of its device."""
    memory = MemoryUse(strategy="Dynamic", basis="", peak_mib=100)
    measured = Measured(mean_utilization=0.1, device_seconds=3600)
    found = {"phase": "Succeeded", "devices": [("a", 0, 1000)], "memory": memory, "measured": measured, "request": "1"}
    return make_job(number=7, **(found | status))


@pytest.mark.parametrize(
    ("options", "written", "said"),
    [
        (
            {"withdraw": False, "dry_run": False},
            {"rightSize": "1G,0.2"},
            "once gjob redo 7 submits it again, 0.8 GPUs less. Peak 100 MiB of 1,024 MiB on a device in 1 run",
        ),
        ({"withdraw": False, "dry_run": True}, None, "Nothing was changed."),
        (
            {"withdraw": True, "dry_run": False},
            {"rightSize": None},
            "Job 7 requests 1 once gjob redo 7 submits it again, as it was submitted.",
        ),
    ],
    ids=["accepted", "only said", "withdrawn"],
)
async def test_a_job_is_resized_to_what_it_was_measured_to_need(
    api: Api, tmp_path: Path, options: dict[str, bool], written: dict[str, Any] | None, said: str
) -> None:
    found = await resized(api, job=wide(), folder=tmp_path, **options)
    assert said in found
    asked_for = [each.body["spec"] for each in api.of(f"PATCH {JOBS}/train")]
    assert asked_for == ([] if written is None else [written])


async def test_a_job_that_needs_what_it_requests_is_not_resized(api: Api, tmp_path: Path) -> None:
    busy = wide(measured=Measured(mean_utilization=0.9, device_seconds=3600))
    with pytest.raises(CommandError, match="GPUJob train keeps its request: no smaller one follows from what it used"):
        await resized(api, job=busy, folder=tmp_path, withdraw=False, dry_run=False)
    assert not api.of(f"PATCH {JOBS}/train")


async def resized(api: Api, *, job: Any, folder: Path, **options: bool) -> str:
    api.answer(f"GET {JOBS}", listed(job))
    api.answer(f"PATCH {JOBS}/train", Answer(body=values_of(job)))
    (folder / "kubeconfig").write_text(KUBECONFIG.format(url=api.url))
    where = {"kubeconfig": str(folder / "kubeconfig"), "context": None, "namespace": None}
    return await asyncio.to_thread(lambda: update.resize("7", **where, **options))
