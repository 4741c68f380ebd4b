"""Which jobs have a record to be written, from version to version, while writes are on their way."""

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import OwnerReference
from dovetail_operator.state.due_records import Dues
from tests.operator_.builders import at, make_job

RUNS = {"phase": "Running", "startTime": at(-60)}
ENDED = {"phase": "Succeeded", "startTime": at(-60), "completionTime": at(0)}


@pytest.fixture
def dues() -> Dues:
    return Dues()


def written(dues: Dues) -> list[tuple[str, str, bool]]:
    """Write all that is due, and say what it was."""
    taken = dues.take()
    dues.done(taken)
    return [(each.job.metadata.name, each.job.status.phase, each.gone) for each in taken]


def job(name: str = "x", *, status: dict[str, object] | None = None, **spec: object) -> GPUJob:
    return make_job(name, status=status, **spec)


def test_a_job_is_written_when_it_begins_and_when_it_ends_and_not_in_between(dues: Dues) -> None:
    for status, due in ((None, []), (RUNS, ["Running"]), (RUNS, []), (ENDED, ["Succeeded"]), (ENDED, [])):
        dues.observe(job(status=status))
        assert [phase for _, phase, _ in written(dues)] == due


def test_a_job_is_kept_when_its_end_is_written_and_not_before(dues: Dues) -> None:
    dues.observe(job(status=RUNS))
    written(dues)
    assert not dues.is_kept(job())
    dues.observe(job(status=ENDED))
    assert not dues.is_kept(job())
    written(dues)
    assert (dues.is_kept(job()), dues.is_kept(job("y"))) == (True, False)


def test_a_deleted_job_is_written_as_gone_unless_its_end_was_written(dues: Dues) -> None:
    for name, status in (("runs", RUNS), ("ended", ENDED)):
        dues.observe(job(name, status=status))
    written(dues)
    for name in ("runs", "ended", "waits"):
        dues.drop(job(name))
    assert [(name, gone) for name, _, gone in written(dues)] == [("runs", True), ("waits", True)]


def refused(name: str, *, status: dict[str, object] | None = None, **spec: object) -> GPUJob:
    found = job(name, status=status, **spec)
    return replace(found, metadata=replace(found.metadata, annotations={names.REFUSED: "true"}))


def test_a_submission_that_was_refused_is_not_written_unless_it_has_run(dues: Dues) -> None:
    tried = {
        "phase": "Queued",
        "attempts": [{"number": 1, "reason": "Failed", "message": "", "counted": True, "endTime": at(-60)}],
    }
    for gone in (refused("never"), refused("ran", status=RUNS), refused("tried", status=tried), job("cancelled")):
        dues.drop(gone)
    assert [name for name, *_ in written(dues)] == ["ran", "tried", "cancelled"]


def task_of(array: str, *, name: str) -> GPUJob:
    task = job(name)
    owner = OwnerReference(
        api_version=names.API_VERSION, kind="GPUJob", name=array, uid=job(array).metadata.uid, controller=True
    )
    return replace(task, metadata=replace(task.metadata, owner_references=[owner]))


def test_the_tasks_of_an_array_that_was_refused_are_not_written(dues: Dues) -> None:
    dues.drop(refused("array", array={"indexes": "0-1"}))
    for array, index in (("array", 0), ("other", 1)):
        dues.drop(task_of(array, name=f"task-{index}"))
    assert [name for name, *_ in written(dues)] == ["task-1"]


def test_of_the_arrays_that_were_refused_the_latest_are_remembered(dues: Dues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail_operator.state.due_records._MOST_REFUSED", 2)
    for array in ("first", "second", "third"):
        dues.drop(refused(array, array={"indexes": "0-1"}))
    for array in ("first", "second", "third"):
        dues.drop(task_of(array, name=f"{array}-0"))
    assert [name for name, *_ in written(dues)] == ["first-0"]


def test_a_name_that_is_used_again_begins_again(dues: Dues) -> None:
    for status in (RUNS, ENDED):
        for _ in range(2):
            dues.observe(job(status=status))
            assert len(written(dues)) == 1
            dues.drop(job(status=status))
            written(dues)


def test_a_job_that_ends_while_its_beginning_is_written_is_due_again(dues: Dues) -> None:
    dues.observe(job(status=RUNS))
    begun = dues.take()
    dues.observe(job(status=ENDED))
    dues.done(begun)
    assert written(dues) == [("x", "Succeeded", False)]


def test_a_job_that_is_deleted_while_its_end_is_written_is_not_kept_for_ever(dues: Dues) -> None:
    dues.observe(job(status=ENDED))
    ended = dues.take()
    dues.drop(job())
    dues.done(ended)
    assert not dues.is_kept(job())
    assert [gone for _, _, gone in written(dues)] == [True]
    assert not dues.is_kept(job())


def test_an_end_that_is_written_while_a_later_version_waits_is_kept(dues: Dues) -> None:
    dues.observe(job(status=ENDED))
    ended = dues.take()
    dues.observe(job(status=ENDED))
    dues.done(ended)
    assert dues.is_kept(job())


def test_at_most_two_hundred_are_taken_at_a_time_in_order_of_arrival(dues: Dues) -> None:
    for number in range(201):
        dues.observe(job(f"x{number}", status=RUNS))
    assert len(dues) == 201
    first, second = dues.take(), dues.take()
    assert [each.job.metadata.name for each in first] == [f"x{number}" for number in range(200)]
    assert ([each.job.metadata.name for each in second], len(dues)) == (["x200"], 0)


def test_each_due_job_wakes_the_history_and_nothing_else_does(dues: Dues) -> None:
    dues.observe(job("early", status=RUNS))
    woken: list[int] = []
    dues.call_on_change(lambda: woken.append(len(dues)))
    dues.observe(job(status=RUNS))
    dues.observe(job("waits"))
    dues.observe(job("array", status=RUNS, array={"indexes": "0-3"}))
    assert woken == [2]
    dues.drop(job())
    assert woken == [2, 2]
