"""Dispatchers of a fleet: which clusters get a job, by what is known at its submission. Pure.

None of them sends a job to a cluster that lacks its data, or that is too small for it; only `to_home` does not look.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import inf

from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.estimates import simulation
from dovetail.queue.model.candidates import Candidate, Room, find_room
from dovetail.simulator.fleet import Arrival
from dovetail.simulator.queue_replay import Scene, Submission, likely


def to_home(arrival: Arrival, *, clusters: Mapping[str, Scene]) -> Sequence[str]:  # noqa: ARG001 - the protocol's
    """The cluster of its team, always: clusters without a dispatcher."""
    return (arrival.home,)


def least_loaded(arrival: Arrival, *, clusters: Mapping[str, Scene]) -> Sequence[str]:
    """The cluster with the fewest running and requested GPUs for each GPU that it has; of equals its team's."""
    return _best(arrival, clusters=clusters, cost=lambda scene: (load(scene),))


def first_to_admit(arrival: Arrival, *, clusters: Mapping[str, Scene]) -> Sequence[str]:
    """Every cluster that could run it, as MultiKueue's all-at-once does: the first that admits it runs it.

    Ties have no rule there, so the order is a draw that depends on the job alone.
    """
    return sorted(
        _able(arrival, clusters=clusters),
        key=lambda name: blake2b(f"{arrival.key}/{name}".encode(), digest_size=8).digest(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestStart:
    """The cluster whose queue expects to start the job first; of equals the least loaded.

    `ran(job, so_far_seconds)` is how long a job runs in total, in seconds; by default as long as its limit allows.
    """

    ran: Callable[[Candidate, float], float] = lambda job, _so_far_seconds: job.run_seconds

    def __call__(self, arrival: Arrival, *, clusters: Mapping[str, Scene]) -> Sequence[str]:
        return _best(
            arrival,
            clusters=clusters,
            cost=lambda scene: (expected_start(arrival.submission, scene=scene, ran=self.ran), load(scene)),
        )


def load(scene: Scene) -> float:
    """The GPUs that running jobs hold and waiting ones request, as a part of the cluster's GPUs; above 1 in a queue."""
    totals = scene.ledger.totals()
    asked = sum(each.job.gpus for each in scene.waiting.values())
    return (totals.promised_milli / WHOLE_MILLI + asked) / totals.devices if totals.devices else inf


def expected_start(submission: Submission, *, scene: Scene, ran: Callable[[Candidate, float], float]) -> float:
    """In how many seconds the job would start here, by the queue's own estimate; infinity if it makes none."""
    key = submission.job.key
    with_it = replace(scene, waiting={**scene.waiting, key: submission})
    waiting, leaving = likely(with_it, ran=ran)
    look = SchedulingCycle(scene.ledger.copy(), sites={}, leaving=leaving)
    pending = simulation.first_that_wait(look.in_order(waiting), look=look)
    if all(job.key != key for job in pending):
        # Of a longer queue, only the first jobs get an estimate.
        return 0.0 if len(pending) < simulation.FORESEEN_JOBS else inf
    starts = simulation.play(pending, look=look, only=key)
    return next((each.in_seconds for each in starts if each is not None and each.key == key), inf)


def _best(
    arrival: Arrival, *, clusters: Mapping[str, Scene], cost: Callable[[Scene], tuple[float, ...]]
) -> Sequence[str]:
    """The one cluster that costs least; of equals its team's, then the first by name."""
    able = _able(arrival, clusters=clusters)
    return sorted(able, key=lambda name: (cost(clusters[name]), name != arrival.home, name))[:1]


def _able(arrival: Arrival, *, clusters: Mapping[str, Scene]) -> list[str]:
    """The clusters that have its data and could run it, now or later."""
    return [
        name
        for name, scene in clusters.items()
        if arrival.may_use(name) and _can_ever_run(arrival.submission.job, scene=scene)
    ]


def _can_ever_run(job: Candidate, *, scene: Scene) -> bool:
    found = find_room(job, ledger=scene.ledger, fit_cache=FitCache(scene.ledger), sites={})
    return isinstance(found, Room) or found.shortage.reason != "ExceedsCapacity"
