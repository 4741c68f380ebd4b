"""`dovetail move plan`: the text for people, and the exit code."""

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from dovetail.answers.jobs import JobReference
from dovetail.answers.moves import MoveRow, MovesAnswer, MovesList, PlacedWorker
from dovetail.api.gpujob import GPUJob
from dovetail.query.jobs import selection
from dovetail_cli import app
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.explain import move_plan
from dovetail_cli.ui.errors import MissingError
from tests.cli.builders import make_job

FOUND = MovesAnswer(
    job=JobReference(namespace="team", name="big", number=4),
    summary="Job 4 (big) starts within 60s if 1 running job restarts elsewhere: 0.18 GPU hours are lost, and 8.00 are "
    "used earlier",
    details=[],
    holds=True,
    moves=[
        MoveRow(
            job=JobReference(namespace="other", name="x", number=1),
            moves="Restart",
            source=[PlacedWorker(node="a", indexes=[2])],
            destination=[PlacedWorker(node="b", indexes=[0])],
            saves_every_seconds=600,
            lost_device_seconds=660.0,
            away_seconds=90.0,
        )
    ],
    workers=[PlacedWorker(node="a", indexes=[0, 1, 2, 3]), PlacedWorker(node="c", indexes=[])],
    starts_in_seconds=60.0,
    otherwise_seconds=None,
    lost_device_seconds=660.0,
    gained_device_seconds=28800.0,
    compared=0,
    movable=3,
    notes=[],
    note_details=[],
)
NONE = msgspec.structs.replace(
    FOUND, summary="No moves for job 4 (big): it starts without moves", holds=False, moves=[], workers=[], movable=1
)


def text(*found: MovesAnswer, to_apply: bool = False) -> str:
    return move_plan.text(MovesList(items=list(found)), to_apply=to_apply)


def test_a_plan_is_a_sentence_its_moves_and_its_proof() -> None:
    assert text(FOUND).splitlines() == [
        f"{FOUND.summary}.",
        "",
        "NAMESPACE  JOB  MOVES    FROM  TO   LOSES       AWAY",
        "other      x    Restart  a:2   b:0  0.18 GPU h  90s",
        "",
        "big starts on a:0,1,2,3 c. No other job waits.",
        "",
        "Nothing was changed.",
    ]


def test_of_several_jobs_each_has_its_plan_or_its_reason_and_what_holds_for_all_comes_once() -> None:
    note = "PodDisruptionBudgets may not be read"
    shown = text(*(msgspec.structs.replace(each, notes=[note]) for each in (FOUND, NONE, FOUND)))
    assert [line for line in shown.splitlines() if line.endswith(".")] == [
        f"{FOUND.summary}.",
        "big starts on a:0,1,2,3 c. No other job waits.",
        f"{NONE.summary}.",
        f"{FOUND.summary}.",
        "big starts on a:0,1,2,3 c. No other job waits.",
        (
            "3 running jobs may move: those that may be preempted, have run long enough, and have all their workers on "
            "nodes."
        ),
        f"{note}.",
        "Nothing was changed.",
    ]


@pytest.mark.parametrize(
    ("compared", "says"),
    [
        (1, "1 other waiting job starts no later than without the moves."),
        (2, "2 other waiting jobs start no later than without the moves."),
    ],
)
def test_the_proof_counts_the_other_jobs(compared: int, says: str) -> None:
    assert text(msgspec.structs.replace(FOUND, compared=compared), to_apply=True).endswith(says)


def test_without_a_plan_it_says_how_many_may_move_and_what_it_does_not_count() -> None:
    shown = text(msgspec.structs.replace(NONE, notes=["PodDisruptionBudgets may not be read"]))
    assert shown.splitlines() == [
        "No moves for job 4 (big): it starts without moves.",
        "",
        (
            "1 running job may move: those that may be preempted, have run long enough, and have all their workers on "
            "nodes."
        ),
        "",
        "PodDisruptionBudgets may not be read.",
    ]


@dataclass(frozen=True, kw_only=True)
class Shown:
    holds: bool
    code: int


@pytest.mark.parametrize("shown", [Shown(holds=True, code=0), Shown(holds=False, code=1)], ids=str)
def test_the_exit_code_says_whether_there_is_a_plan(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(move_plan, "show", lambda _word, **_options: ("the plan", shown.holds))
    assert app.main(["move", "plan", "4"]) == shown.code
    assert capsys.readouterr().out == "the plan\n"


def test_a_list_is_not_a_form_of_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["move", "plan", "4", "-o", "csv"]) == 2
    assert '-o "csv": unknown format, allowed are table, json, yaml' in capsys.readouterr().err


@pytest.mark.parametrize(("plans", "code"), [([FOUND, FOUND], 0), ([FOUND, NONE], 1)], ids=["all", "one has none"])
def test_the_exit_code_of_several_says_whether_each_has_a_plan(
    plans: list[MovesAnswer], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_go: Any, **_options: Any) -> MovesList:
        return MovesList(items=plans)

    monkeypatch.setattr(move_plan, "work", work)
    assert app.main(["move", "plan", "4", "7", "-o", "json"]) == code
    assert [each["holds"] for each in json.loads(capsys.readouterr().out)["items"]] == [each.holds for each in plans]


async def test_the_jobs_are_those_of_the_own_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and names of another namespace mean other jobs."""
    jobs = [make_job("train", namespace=each, number=4) for each in ("other", "default")]
    asked: list[Any] = []

    async def take(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(jobs=jobs, nodes=())

    async def budgets(_client: Any) -> list[str]:
        return ["budget"]

    def moves_for(jobs: list[GPUJob], **options: Any) -> MovesList:
        asked.extend((job.metadata.namespace, options["budgets"], options["to_apply"]) for job in jobs)
        return MovesList(items=[FOUND] * len(jobs))

    monkeypatch.setattr(move_plan, "take", take)
    monkeypatch.setattr(move_plan, "list_disruption_budgets", budgets)
    monkeypatch.setattr(move_plan, "moves_for", moves_for)
    cluster = Cluster(client=SimpleNamespace(), namespace="default")  # type: ignore[arg-type] # nothing is asked of it
    for word in ("train", "4"):
        for to_apply in (True, False):
            wanted = selection.parse_ids([word], field="JOBS")
            (job,), plans = await move_plan.found_for(cluster, wanted=wanted, to_apply=to_apply)
            assert (job.metadata.namespace, plans.items) == ("default", [FOUND])
    assert asked == [("default", ["budget"], to_apply) for to_apply in (True, False)] * 2
    for words in (["5"], ["train", "5"], ["5-9"]):
        with pytest.raises(MissingError, match=r"^no job 5(-9)? in namespace default$"):
            await move_plan.found_for(cluster, wanted=selection.parse_ids(words, field="JOBS"), to_apply=False)
    # A job has one plan, by however many words it is named.
    wanted = selection.parse_ids(["train", "4", "1-9"], field="JOBS")
    assert len((await move_plan.found_for(cluster, wanted=wanted, to_apply=False))[0]) == 1
