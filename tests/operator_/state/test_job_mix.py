"""What jobs and other pods leave in the mix that prices plans: every shape, and gangs as what they need at once."""

from typing import Any

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail_operator.state.job_mix import JobMix
from tests.core.engine.builders import make_ask
from tests.core.engine.gang import topologies


def counted(ask: Ask | None, *, workers: int) -> list[tuple[int, int, float, int]]:
    """What one submitted job leaves: GPUs, share, weight and CPU of each shape."""
    mix = JobMix(Ledger(), policy="ph")
    mix.submitted(ask, uid="job", workers=workers)
    return [(each.gpus, each.share_milli, each.weight, each.cpu_milli) for each in mix.term.record().counted]


def gang(gpu: str, **rules: Any) -> Ask:
    return topologies.gang(gpu, ask=make_ask(gpu, cpu_milli=1000), **rules)


@pytest.mark.parametrize(
    ("ask", "workers", "found"),
    [
        (make_ask("2", cpu_milli=1000), 1, [(2, 1000, 1.0, 1000)]),
        (make_ask("0.5", cpu_milli=1000), 3, [(1, 500, 3.0, 1000)]),
        (gang("2"), 4, [(2, 1000, 4.0, 1000)]),
        (gang("2", required="rack"), 4, [(2, 1000, 4.0, 1000)]),
        (gang("2", required="host"), 4, [(8, 1000, 1.0, 4000)]),
        (gang("2", required="rack", group_size=2, group_level="host"), 4, [(4, 1000, 2.0, 2000)]),
        (gang("2", group_size=2, group_level="nvlink"), 4, [(2, 1000, 4.0, 1000)]),
        (gang("0.5", required="host"), 4, [(1, 500, 4.0, 1000)]),
        (Ask(gpu=None, cpu_milli=1000), 4, [(0, 0, 4.0, 1000)]),
        (None, 4, []),
    ],
    ids=[
        "one worker",
        "workers with shares need a place each",
        "a gang needs a place for each worker",
        "a rack has many nodes",
        "all workers on one host need one node for all of them",
        "each group on one host needs a node for the group",
        "an NVLink domain has several nodes",
        "shares on one host need no free GPU",
        "workers without GPUs take CPU",
        "a job that cannot be read",
    ],
)
def test_a_job_counts_as_what_it_needs_at_once(
    ask: Ask | None, workers: int, found: list[tuple[int, int, float, int]]
) -> None:
    assert counted(ask, workers=workers) == [pytest.approx(each, rel=0.01) for each in found]


def test_a_job_counts_once() -> None:
    mix = JobMix(Ledger(), policy="ph")
    for _ in range(2):
        mix.submitted(make_ask("1"), uid="job", workers=2)
    assert mix.term.arrivals == 2


def test_a_pod_of_no_job_counts_once_by_what_it_requests() -> None:
    mix = JobMix(Ledger(), policy="ph")
    for uid in ("pod", "pod", "other"):
        mix.created(Ask(gpu=None, cpu_milli=8000), uid=uid)
    mix.created(None, uid="requests nothing of ours")
    (found,) = mix.term.record().counted
    assert (found.cpu_milli, found.gpus, mix.term.arrivals) == (8000, 0, 2)
