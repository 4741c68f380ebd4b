"""`dovetail move apply`: what is requested, when the wait ends, and what is said then."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.answers.moves import MovesAnswer, MovesApplied, MovesList
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.explain import move_apply, move_plan
from dovetail_cli.ui.errors import CommandError, UsageError
from tests.cli.builders import make_job
from tests.cli.explain.test_move_plan import FOUND, NONE
from tests.core.kube.api import Answer, Api, Stream, line, listing, refusal

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
BIG = f"{JOBS}/big"


def job_of(
    name: str = "big", *, uid: str = "", version: str = "5", asked_at: str | None = None, **status: Any
) -> GPUJob:
    job = make_job(name, resource_version=version, **{"number": 4, "phase": "Queued", **status})
    return msgspec.structs.replace(
        job,
        metadata=msgspec.structs.replace(job.metadata, uid=uid or f"uid-{name}"),
        spec=msgspec.structs.replace(job.spec, move_request_time=asked_at),
    )


def object_of(name: str = "big", **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = values_of(job_of(name, **fields))
    return found


def changes(*events: tuple[str, dict[str, Any]]) -> Stream:
    return Stream(chunks=[line(kind, each) for kind, each in events])


async def carried_out(
    cluster: Cluster, *others: tuple[GPUJob, MovesAnswer], timeout_seconds: float = 120.0
) -> MovesApplied:
    return (await all_carried_out(cluster, (job_of(), FOUND), *others, timeout_seconds=timeout_seconds))[0]


async def all_carried_out(
    cluster: Cluster, *plans: tuple[GPUJob, MovesAnswer], timeout_seconds: float = 120.0
) -> list[MovesApplied]:
    jobs, found = [job for job, _ in plans], [plan for _, plan in plans]
    async with asyncio.timeout(240):
        return await move_apply._carried_out(cluster, jobs=jobs, plans=found, timeout_seconds=timeout_seconds)


def requested(api: Api, name: str = "big") -> list[Any]:
    patches = [each.body for each in api.of(f"PATCH {JOBS}/{name}")]
    assert all(each["metadata"] == {"uid": f"uid-{name}"} for each in patches), "of no other job of that name"
    return [each["spec"]["moveRequestTime"] for each in patches]


def applied(plan: MovesAnswer, *, started: bool = False, phase: str = "") -> MovesApplied:
    phase = phase or ("Running" if started else "Queued")
    return MovesApplied(plan=plan, started=started, phase=phase, message="", nodes=[], seconds=2.0)


async def test_it_waits_until_that_very_job_runs(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", listing(object_of(), version=5))
    api.answer(f"PATCH {BIG}", Answer(body=object_of()))
    other = object_of(uid="another", version="7", phase="Cancelled")
    starts = object_of(version="6", phase="Running", start_time="2026-11-21T12:01:00Z", nodes=["a", "c"])
    # At once, so that both are known before it looks again.
    api.answer(f"WATCH {JOBS}", Stream(chunks=[line("MODIFIED", starts) + line("MODIFIED", other)]))
    found = await carried_out(cluster)
    assert (found.started, found.phase, found.nodes) == (True, "Running", ["a", "c"])
    (at,) = requested(api)
    assert at.endswith("Z")
    assert move_apply._said(msgspec.structs.replace(found, seconds=90.0)) == "big runs on a, c after 90s."


@pytest.mark.parametrize("status", [{"phase": "Cancelled"}, {"phase": "Failed", "start_time": "2026-11-21T12:00:00Z"}])
async def test_one_that_ends_otherwise_has_not_started(api: Api, cluster: Cluster, status: dict[str, Any]) -> None:
    api.answer(f"GET {JOBS}", listing(object_of(), version=5))
    api.answer(f"PATCH {BIG}", Answer(body=object_of()))
    api.answer(f"WATCH {JOBS}", changes(("MODIFIED", object_of(version="6", nodes=["a"], **status))))
    found = await carried_out(cluster)
    assert (found.started, found.phase, found.nodes) == (False, status["phase"], [])
    (at,) = requested(api)
    assert at is not None, "nothing is withdrawn from a job that has ended"
    assert move_apply._said(found) == f"big has ended ({status['phase']})."
    assert move_apply._exit_code([found]) == 1


async def test_after_its_time_the_request_is_withdrawn(api: Api, cluster: Cluster) -> None:
    waits = object_of(reason="Resources", message="Need 8 GPUs, only 6 available", nodes=["a"])
    api.answer(f"GET {JOBS}", listing(waits, version=5))
    api.answer(f"PATCH {BIG}", Answer(body=waits), Answer(body=waits))
    found = await carried_out(cluster, timeout_seconds=0.0)
    assert (found.started, found.nodes) == (False, [])
    asked, withdrawn = requested(api)
    assert asked is not None
    assert withdrawn is None
    assert move_apply._said(msgspec.structs.replace(found, seconds=600.0)) == (
        "big has not started within 10m (Queued: Need 8 GPUs, only 6 available). The request is withdrawn."
    )


@pytest.mark.parametrize("when", ["before the list", "later", "under its name there is another"])
async def test_a_job_that_is_deleted_is_waited_for_no_more(api: Api, cluster: Cluster, when: str) -> None:
    there = {
        "before the list": [],
        "later": [object_of()],
        "under its name there is another": [object_of(uid="another")],
    }
    api.answer(f"GET {JOBS}", listing(*there[when], version=5))
    api.answer(f"PATCH {BIG}", Answer(body=object_of()))
    api.answer(f"WATCH {JOBS}", changes(("DELETED", object_of(version="6"))))
    found = await carried_out(cluster)
    assert (found.started, found.phase) == (False, "Deleted")
    assert move_apply._said(found) == "big was deleted before it started."
    assert move_apply._exit_code([found]) == 1
    assert len(requested(api)) == (when == "later"), "no other job moves for one that is gone"


async def test_what_the_api_server_refuses_ends_it_with_its_sentence(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", listing(object_of(), version=5))
    api.answer(f"PATCH {BIG}", refusal(403, reason="Forbidden", message="may not patch"))
    with pytest.raises(CommandError, match="may not patch"):
        await carried_out(cluster)


@pytest.fixture
def times_out(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[move_apply._Following], bool]], None]:
    """The time of the wait is over once this holds."""

    def once(holds: Callable[[move_apply._Following], bool]) -> None:
        async def until_over(following: move_apply._Following, _say: Any) -> None:
            while not holds(following):
                await following._changed.wait()
                following._changed.clear()
            raise TimeoutError

        monkeypatch.setattr(move_apply._Following, "until_over", until_over)

    return once


async def test_of_several_jobs_those_with_a_plan_are_requested_and_each_says_how_it_went(
    api: Api, cluster: Cluster, times_out: Callable[..., None]
) -> None:
    waits = [object_of(name) for name in ("big", "ends", "late")]
    api.answer(f"GET {JOBS}", listing(*waits, object_of("none"), version=5))
    for each in waits:
        api.answer(f"PATCH {JOBS}/{each['metadata']['name']}", Answer(body=each), Answer(body=each))
    starts = object_of(version="6", phase="Running", start_time="2026-11-21T12:01:00Z", nodes=["a"])
    api.answer(f"WATCH {JOBS}", changes(("MODIFIED", starts), ("DELETED", object_of("ends", version="7"))))
    plans = [(job_of(name), NONE if name == "none" else FOUND) for name in ("big", "none", "ends", "late")]
    times_out(lambda following: len(following.open) == 1)
    found = await all_carried_out(cluster, *plans)
    assert [(each.started, each.phase, each.plan.holds) for each in found] == [
        (True, "Running", True), (False, "Queued", False), (False, "Deleted", True), (False, "Queued", True),
    ]  # fmt: skip
    assert [len(requested(api, name)) for name in ("big", "none", "ends", "late")] == [1, 0, 1, 2]
    assert requested(api, "late")[1] is None
    assert found[1].seconds == 0.0


async def test_a_job_that_has_started_since_its_plan_gets_no_request(api: Api, cluster: Cluster) -> None:
    starts = object_of(version="6", phase="Running", start_time="2026-11-21T12:01:00Z", nodes=["a"])
    api.answer(f"GET {JOBS}", listing(starts, version=6))
    found = await carried_out(cluster)
    assert (found.started, requested(api)) == (True, [])


async def test_the_later_request_of_another_terminal_is_not_withdrawn(
    api: Api, cluster: Cluster, times_out: Callable[..., None]
) -> None:
    api.answer(f"GET {JOBS}", listing(object_of(), version=5))
    api.answer(f"PATCH {BIG}", Answer(body=object_of()))
    api.answer(f"WATCH {JOBS}", changes(("MODIFIED", object_of(version="6", asked_at="2126-11-21T12:01:00Z"))))
    times_out(lambda following: following.open[0].job.spec.move_request_time is not None)
    found = await carried_out(cluster)
    assert (found.started, len(requested(api))) == (False, 1)


async def test_ctrl_c_withdraws_the_request(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", listing(object_of(), version=5))
    api.answer(f"PATCH {BIG}", Answer(body=object_of()), Answer(body=object_of()))
    waiting = asyncio.create_task(carried_out(cluster))
    async with asyncio.timeout(60):
        while not api.of(f"PATCH {BIG}"):  # noqa: ASYNC110 - a request has no event
            await asyncio.sleep(0.01)
        # What asyncio makes of Ctrl-C.
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert requested(api)[-1] is None


async def test_a_request_that_is_refused_withdraws_those_before_it(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {JOBS}", listing(object_of(), object_of("other"), version=5))
    api.answer(f"PATCH {BIG}", Answer(body=object_of()), Answer(body=object_of()))
    api.answer(f"PATCH {JOBS}/other", refusal(403, reason="Forbidden", message="may not patch"))
    with pytest.raises(CommandError, match="may not patch"):
        await carried_out(cluster, (job_of("other"), FOUND))
    assert [at is None for at in requested(api)] == [False, True]


@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "Conflict")])
async def test_a_job_that_is_gone_meanwhile_keeps_no_other_request_up(
    api: Api, cluster: Cluster, code: int, reason: str
) -> None:
    api.answer(f"GET {JOBS}", listing(object_of(), object_of("other"), version=5))
    api.answer(f"PATCH {BIG}", Answer(body=object_of()), refusal(code, reason=reason))
    api.answer(f"PATCH {JOBS}/other", refusal(code, reason=reason), Answer(body=object_of("other")))
    await carried_out(cluster, (job_of("other"), FOUND), timeout_seconds=0.0)
    assert [[at is None for at in requested(api, name)] for name in ("big", "other")] == [[False, True]] * 2


@pytest.mark.parametrize(
    ("done", "code"),
    [
        ([applied(FOUND, started=True)] * 2, 0),
        ([applied(FOUND, started=True), applied(FOUND)], 124),
        ([applied(FOUND), applied(NONE)], 1),
        ([applied(FOUND, started=True), applied(NONE, started=True)], 1),
        ([applied(FOUND), applied(FOUND, phase="Failed")], 1),
        ([applied(FOUND, started=True), applied(FOUND, phase="Deleted")], 1),
    ],
    ids=["all run", "one is late", "one has no plan", "one ran before", "one has ended", "one is gone"],
)
def test_the_exit_code_of_several_is_that_of_the_worst(done: list[MovesApplied], code: int) -> None:
    assert move_apply._exit_code(done) == code


@pytest.fixture
def apply(api: Api, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command in this loop, with this plan for the job."""

    async def run(plan: MovesAnswer, *, form: str, yes: bool = True) -> int:
        async def found_for(_cluster: Cluster, **asked: Any) -> tuple[list[GPUJob], MovesList]:
            assert asked["to_apply"], "only jobs that say so may move"
            return [job_of()], MovesList(items=[plan])

        async def carried(_cluster: Cluster, **asked: Any) -> list[MovesApplied]:
            return [applied(plan, started=plan.holds and asked["timeout_seconds"] > 1)]

        work: list[Any] = []
        monkeypatch.setattr(move_plan, "found_for", found_for)
        monkeypatch.setattr(move_apply, "_carried_out", carried)
        monkeypatch.setattr(move_apply, "work", lambda go, **_: work.append(go))
        move_apply.apply(
            ["4"], yes=yes, timeout_seconds=1.0 if form == "late" else 9.0, form="table" if form == "late" else form,
            kubeconfig=None, context=None, namespace=None,
        )  # fmt: skip
        code: int = await work[0](cluster)
        return code

    return run


async def test_the_exit_code_says_whether_it_runs(
    apply: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await apply(FOUND, form="table") == 0
    assert capsys.readouterr().out.endswith("big runs on  after 2s.\n")
    assert await apply(FOUND, form="late") == 124
    assert await apply(NONE, form="table") == 1
    assert "Nothing was changed" not in capsys.readouterr().out


async def test_a_program_gets_one_document(apply: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert await apply(FOUND, form="json") == 0
    assert [each["started"] for each in json.loads(capsys.readouterr().out)["items"]] == [True]
    assert await apply(NONE, form="json") == 1
    assert [each["plan"]["holds"] for each in json.loads(capsys.readouterr().out)["items"]] == [False]


async def test_a_person_who_is_asked_sees_the_plan_also_before_a_document(
    apply: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(move_apply.typer, "confirm", lambda *_, **__: False)
    assert await apply(FOUND, form="json", yes=False) == 1
    printed = capsys.readouterr()
    assert (printed.out, FOUND.summary in printed.err) == ("", True)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused_before_anything_is_asked(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"write a number of seconds above 0$"):
        move_apply.apply(
            ["4"], yes=True, timeout_seconds=seconds, form="table", kubeconfig="/none", context=None, namespace=None
        )


def test_without_a_terminal_it_asks_for_a_yes() -> None:
    with pytest.raises(UsageError, match="say --yes"):
        move_apply.apply(
            ["4"], yes=False, timeout_seconds=9.0, form="table", kubeconfig="/none", context=None, namespace=None
        )
