"""A queue that is played over time."""

from functools import partial

from dovetail.queue.model.candidates import Candidate
from dovetail.simulator.queue_replay import Running, Scene, Submission, easy_backfill, likely, play
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, make_job


def submit(job: Candidate, *, at: float = 0, ran: float) -> Submission:
    return Submission(job=job, at_seconds=at * HOUR, ran_seconds=ran * HOUR)


def hours(starts: dict[str, float]) -> dict[str, float]:
    return {key.removeprefix("uid-"): at / HOUR for key, at in starts.items()}


def test_jobs_start_when_others_really_end_and_not_when_their_limits_say() -> None:
    jobs = [submit(make_job("a", "4", hours=8), ran=1), submit(make_job("b", "4", hours=8, at=1), at=0.5, ran=2)]
    assert hours(play(jobs, ledger=make_ledger(n=4))) == {"a": 0, "b": 1}


def test_a_short_job_passes_a_large_one_that_waits_and_a_long_one_does_not() -> None:
    jobs = [
        submit(make_job("runs", "3", hours=4), ran=4),
        submit(make_job("large", "4", hours=1, at=1), at=1, ran=1),
        submit(make_job("long", "1", hours=9, at=2), at=1, ran=9),
        submit(make_job("short", "1", hours=2, at=3), at=1, ran=1),
    ]
    assert hours(play(jobs, ledger=make_ledger(n=4))) == {"runs": 0, "short": 1, "large": 4, "long": 5}


def test_the_last_minute_before_a_limit_counts_as_it_does_in_the_real_queue() -> None:
    second = 1 / HOUR
    jobs = [
        submit(make_job("runs", "3", hours=100 * second), ran=100 * second),
        submit(make_job("large", "4", hours=1, at=1), at=80 * second, ran=100 * second),
        submit(make_job("passes", "1", hours=18 * second, at=2), at=81 * second, ran=18 * second),
        submit(make_job("would", "1", hours=50 * second, at=3), at=81 * second, ran=50 * second),
    ]
    starts = play(jobs, ledger=make_ledger(n=4))
    assert {key: round(at) for key, at in starts.items()} == {
        "uid-runs": 0, "uid-passes": 81, "uid-large": 100, "uid-would": 200,
    }  # fmt: skip


def test_what_can_never_start_is_left_out() -> None:
    assert play([submit(make_job("x", "9"), ran=1)], ledger=make_ledger(n=4)) == {}


def test_those_who_watch_hear_of_looks_starts_and_ends() -> None:
    seen: list[str] = []

    def started(scene: Scene, run: Running) -> None:
        seen.append(f"start {run.of.job.name} {scene.now / HOUR:g}")

    play(
        [submit(make_job("a", "4"), ran=2), submit(make_job("b", "4", at=1), ran=1)],
        ledger=make_ledger(n=4),
        started=started,
        ended=lambda run: seen.append(f"end {run.of.job.name}"),
        watch=lambda scene: seen.append(f"{len(scene.waiting)} wait"),
    )
    assert seen == [
        "start team/a 0", "1 wait", "end team/a", "start team/b 2", "0 wait", "end team/b", "0 wait",
    ]  # fmt: skip


def test_what_is_likely_never_ends_later_than_the_limit() -> None:
    runs = submit(make_job("runs", "4", hours=4), ran=4)
    scene = Scene(ledger=make_ledger(n=4), waiting={runs.job.key: runs})
    ((key, claims),) = easy_backfill(scene)
    scene = Scene(ledger=scene.ledger, now=2 * HOUR)
    scene.running[key] = Running(of=runs, since_seconds=0, claims=tuple(claims))
    for in_all, left in ((3 * HOUR, HOUR), (9 * HOUR, 2 * HOUR), (HOUR, 0)):
        waiting, leaving = likely(scene, ran=partial(_always, in_all))
        assert not waiting
        assert [each.likely_seconds for each in leaving] == [left]


def _always(seconds: float, _job: Candidate, _so_far: float) -> float:
    return seconds
