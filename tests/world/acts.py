"""Random acts that end jobs for others, with all of their causes at once, and what they cost.

Jobs of two tenants come and go on eight nodes: some of a priority that preempts, some of a tenant that is owed a
guarantee. Nodes are drained, jobs that wait are started by moves, and PodDisruptionBudgets cover most of the pods.
Writes, answers and events are late. The operator is killed after any of its writes, or sleeps while all others go on.

    python -m tests.world.acts --ends 1000 [--seed 1]
"""

import argparse
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final
from unittest import mock

import structlog

from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.jobs.moves import MoveRules
from dovetail.queue.moves.plan import MovePlan
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.queue.move_planner import Moves
from tests.world import rebuilt
from tests.world.api import Values
from tests.world.cluster import healthy_pods
from tests.world.moving import Watch
from tests.world.rules import Rules, milli_of
from tests.world.world import World

NODES: Final = tuple("abcdefgh")
NAMESPACES: Final = ("team", "lab")
# Pods with this label are covered by the budget of their namespace, of which so many are to remain.
_COVERED: Final = {"app": "web"}
_REMAIN: Final = 2
_COVERED_PART: Final = 0.4
_MOST_WAITING: Final = 3
_MOVES: Final = MoveRules(rest_seconds=0.0, per_hour=1000)
_ENDS_OF_A_WORLD: Final = 50
_ROUNDS_TO_THE_END: Final = 200


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a move was stated to lose at most, and what it lost, in device-seconds."""

    stated: float
    actual: float


@dataclass(kw_only=True)
class Figures:
    """What has happened.

    - `ends`: how often a job was ended for others, by the cause
    - `broken`: ends after which fewer pods of a budget ran than it says
    - `losses`: those of the moves
    - `jobs`: how many were submitted, and `succeeded`, how many of them have ended as they should
    - `kills`, `sleeps`: of the operator
    """

    ends: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    jobs: int = 0
    succeeded: int = 0
    kills: int = 0
    sleeps: int = 0

    @property
    def within_stated(self) -> int:
        """How many of the moves lost at most what was stated."""
        return sum(each.actual <= each.stated for each in self.losses)

    def __str__(self) -> str:
        ends = ", ".join(f"{count} by {cause}" for cause, count in sorted(self.ends.items()))
        return (
            f"{self.ends.total():,} ends of {self.jobs:,} jobs ({ends}), {self.kills} kills and {self.sleeps} sleeps "
            f"of the operator: {len(self.broken)} budgets broken, {self.jobs - self.succeeded} jobs lost, "
            f"{self.within_stated} of {len(self.losses)} completed moves lost at most what was stated"
        )


class Ends:
    """Sees each end of a job as the API server does, and checks the budgets then."""

    def __init__(self, world: World, *, figures: Figures) -> None:
        self._world = world
        self._figures = figures
        # By UID.
        self._counted: dict[str, int] = {}
        self._moved: dict[str, int] = {}
        self._runs_since: dict[str, datetime] = {}
        self._ended: dict[str, tuple[float, datetime]] = {}
        self._stated: dict[str, float] = {}
        world.server.watches.append(self._look)

    def begins(self, plan: MovePlan) -> None:
        """Moves of a plan begin, with these losses at most."""
        self._stated |= {each.mover.job.key: each.lost_device_seconds for each in plan.moves}

    def _look(self, plural: str, type_: str, values: Values) -> None:
        if plural == "pods" and type_ == "MODIFIED":
            self._look_at_pod(values)
        elif plural == "gpujobs" and type_ == "MODIFIED":
            self._look_at_job(values)

    def _look_at_pod(self, pod: Values) -> None:
        owner = next(iter(pod["metadata"].get("ownerReferences", ())), None)
        job = self._world.server.find("gpujobs", f"{pod['metadata']['namespace']}/{owner['name']}") if owner else None
        if job is None or pod["status"]["phase"] != "Running":
            return
        uid, now = job["metadata"]["uid"], self._world.now()
        if "deletionTimestamp" not in pod["metadata"]:
            self._begins_to_run(job, uid=uid, now=now)
        elif uid in self._runs_since:
            self._ended[uid] = self._unsaved(job, ran=(now - self._runs_since.pop(uid)).total_seconds()), now
        if "deletionTimestamp" in pod["metadata"] and not self._has_lost_its_room(job, pod=pod):
            self._check_budgets(pod)

    def _has_lost_its_room(self, job: Values, *, pod: Values) -> bool:
        """Whether it is a gang that no one ends for others, and a worker of it has not started.

        Such a gang leaves its devices, whatever a budget says: it does not work, and would keep them for ever.
        """
        (batch,) = pod["metadata"]["ownerReferences"]
        started = sum(
            each["status"]["phase"] != "Pending" and batch in each["metadata"].get("ownerReferences", ())
            for each in self._world.server.all("pods")
        )
        announced = (job["status"].get("preemption") or {}).get("at")
        return not announced and started < job["spec"].get("workers", 1)

    def _check_budgets(self, pod: Values) -> None:
        """No pod ends after which a budget that covers it has fewer than it says. Nobody else ends such a pod here."""
        meta = pod["metadata"]
        if not _COVERED.items() <= meta["labels"].items():
            return
        for budget in self._world.server.all("poddisruptionbudgets"):
            if budget["metadata"]["namespace"] == meta["namespace"]:
                left = len(healthy_pods(self._world.server, budget=budget))
                if left < budget["spec"]["minAvailable"]:
                    self._figures.broken.append(f"{meta['namespace']}/{meta['name']}: {left} remain")

    def _begins_to_run(self, job: Values, *, uid: str, now: datetime) -> None:
        if uid in self._runs_since:
            return
        self._runs_since[uid] = now
        ended, stated = self._ended.pop(uid, None), self._stated.pop(uid, None)
        moved = ((job["status"].get("move") or {}).get("count", 0)) - self._moved.get(uid, 0)
        if ended is None or stated is None or not moved:
            return
        self._moved[uid] = self._moved.get(uid, 0) + moved
        unsaved, at = ended
        gpus = milli_of(str(job["spec"]["gpu"])) / 1000 * job["spec"].get("workers", 1)
        self._figures.losses.append(Loss(stated=stated, actual=gpus * (unsaved + (now - at).total_seconds())))

    @staticmethod
    def _unsaved(job: Values, *, ran: float) -> float:
        """What the program did since it last saved its work."""
        every = job["spec"].get("checkpointIntervalSeconds")
        return ran if every is None else ran % every

    def _look_at_job(self, job: Values) -> None:
        made = job["status"].get("preemption") or {}
        uid, count = job["metadata"]["uid"], made.get("count", 0)
        if count > self._counted.get(uid, 0):
            self._counted[uid] = count
            self._figures.ends[_cause(job, made=made)] += 1


def _cause(job: Values, *, made: Values) -> str:
    if made.get("by") == DRAIN:
        return "drain"
    if (job["status"].get("move") or {}).get("by"):
        return "move"
    return "reclaim" if made.get("message", "").startswith("Is ended for GPUQuota") else "preemption"


class Acts:
    """A world and the acts in it, by a seed. What happens is added to `figures`."""

    def __init__(self, *, seed: int, figures: Figures) -> None:
        self._random = random.Random(seed)
        self.figures = figures
        self.world = World(seed=seed, checked_cycles=False)
        self._watch, self._laws = Watch(self.world), Rules(self.world)
        self.ends = Ends(self.world, figures=self.figures)
        self._build()

    def _build(self) -> None:
        world = self.world
        for name in NODES:
            world.add_node(name, gpus=4)
        world.set_quota("owner", namespaces=["lab"], guaranteed={"gpus": 8})
        world.set_quota("borrower", namespaces=["team"], guaranteed={"gpus": 0})
        for namespace in NAMESPACES:
            spec = {"selector": {"matchLabels": dict(_COVERED)}, "minAvailable": _REMAIN}
            meta = {"name": "web", "namespace": namespace}
            world.server.create("poddisruptionbudgets", {"metadata": meta, "spec": spec, "status": {}})
        world.pass_time(1.0)

    def play(self, *, ends: int) -> None:
        """Act until so many jobs have been ended for others: for a while in a full cluster, then in one with holes."""
        acts: dict[Callable[[], None], tuple[int, int]] = {
            self._submit: (9, 4), self._be_urgent: (5, 0), self._finish: (2, 0), self._finish_large: (0, 4),
            self._make_holes: (0, 6), self._drain: (3, 0), self._open: (2, 2), self._kill: (1, 1), self._sleep: (1, 1),
        }  # fmt: skip
        ends += self.figures.ends.total()
        while self.figures.ends.total() < ends:
            for is_loose, count in ((False, 10), (True, 25)):
                for _ in range(count):
                    act = self._random.choices(list(acts), [weights[is_loose] for weights in acts.values()])[0]
                    act()
                    self.world.pass_time(self._random.choice((0.3, 1.0, 2.0)))

    def come_to_an_end(self) -> None:
        """Let all jobs run and succeed, one after the other: one that is lost, or runs twice, does not."""
        for name in NODES:
            self.world.cordon(name, cordoned=False)
        for _ in range(_ROUNDS_TO_THE_END):
            self.world.settle()
            open_ = {key: job for key, job in self.world.jobs().items() if not is_finished(job)}
            if not open_:
                break
            for key, job in open_.items():
                if job.status.phase == "Running":
                    self.world.finish(key)
        rebuilt.check(self.world)
        self._laws.check_ends()
        self.figures.kills += self.world.kills
        self.figures.succeeded += sum(job.status.phase == "Succeeded" for job in self.world.jobs().values())

    # --- acts --------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """A job that nobody is preempted for comes, of a tenant with or without a guarantee."""
        self._come(gpus=self._random.choice((1, 1, 1, 2)), workers=self._random.choice((1, 1, 1, 2)))

    def _be_urgent(self) -> None:
        """A job of a priority that preempts comes."""
        self._come(gpus=self._random.choice((1, 2, 4)), priority=20)

    def _make_holes(self) -> None:
        """Small jobs end until half of each node is free, and one comes that needs a whole node."""
        for node in NODES:
            there = [job for job in self.world.jobs().values() if job.status.nodes == [node]]
            used = sum(_gpus_of(job) for job in there if job.status.phase == "Running")
            for _ in range(int(used) - 2):
                self._finish(of=partial(_is_small_on, node=node))
        key = self._come(gpus=4, most_waiting=1)
        if key is not None:
            self.world.pass_time(0.6)
            self.world.edit(key, moveRequestTime=self.world.time())

    def _come(self, *, gpus: int, workers: int = 1, priority: int = 0, most_waiting: int = _MOST_WAITING) -> str | None:
        """A job is submitted, if not too many of its priority wait."""
        waiting = [job for job in self.world.jobs().values() if job.status.phase in {None, "Queued"}]
        if sum(job.spec.priority == priority for job in waiting) >= most_waiting:
            return None
        draw, self.figures.jobs = self._random, self.figures.jobs + 1
        interval = draw.choice((None, 30, 300))
        labels = dict(_COVERED) if draw.random() < _COVERED_PART else {}
        spec: dict[str, Any] = {} if interval is None else {"checkpointIntervalSeconds": interval}
        return self.world.submit(
            f"j{self.figures.jobs}",
            namespace=draw.choice(NAMESPACES),
            gpu=str(gpus),
            workers=workers,
            priority=priority,
            policy="Spread" if gpus == 1 else "Pack",
            moves=draw.choice(("Restart", "Restart", "Never")),
            template={
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "busybox"}]},
            },
            **spec,
        )

    def _finish_large(self) -> None:
        self._finish(of=lambda job: _gpus_of(job) == 4)

    def _finish(self, *, of: Callable[[GPUJob], bool] = lambda _job: True) -> None:
        """A job ends by itself. One that a budget covers does so only where that leaves enough others."""
        running = [key for key, job in self.world.jobs().items() if job.status.phase == "Running" and of(job)]
        if not running:
            return
        key = self._random.choice(running)
        job = self.world.jobs()[key]
        if _COVERED.items() <= job.spec.template.metadata.labels.items():
            budget = self.world.server.find("poddisruptionbudgets", f"{job.metadata.namespace}/web")
            if budget is None or budget["status"]["disruptionsAllowed"] < job.spec.workers:
                return
        self.world.finish(key)

    def _drain(self) -> None:
        self._open()
        self.world.cordon(self._random.choice(NODES))

    def _open(self) -> None:
        for name in NODES:
            self.world.cordon(name, cordoned=False)

    def _kill(self) -> None:
        self.world.kill_after(self._random.randint(1, 6))

    def _sleep(self) -> None:
        """The operator gets no processor for some seconds, and then goes on with what it knew."""
        self.figures.sleeps += 1
        for _ in range(self._random.randint(2, 20)):
            self.world.loop.now += 0.5
            self.world.cluster.step()


def _gpus_of(job: GPUJob) -> float:
    return milli_of(str(job.spec.gpu)) / 1000


def _is_small_on(job: GPUJob, *, node: str) -> bool:
    return job.status.nodes == [node] and _gpus_of(job) == 1


@contextmanager
def playing(*, seed: int, figures: Figures) -> Iterator[Acts]:
    """Acts whose plans of moves are seen."""
    begin = Moves._begin

    def seen(self: Moves, plan: MovePlan) -> bool:
        begins = begin(self, plan)
        if begins:
            acts.ends.begins(plan)
        return begins

    with mock.patch("tests.world.operator.MOVES", _MOVES), mock.patch.object(Moves, "_begin", seen):
        acts = Acts(seed=seed, figures=figures)
        try:
            yield acts
        finally:
            acts.world.close()


def main() -> None:
    """Play in one world after the other, and print the figures."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--ends", type=int, default=1000, help="how many ends of jobs (default: %(default)s)")
    options.add_argument("--seed", type=int, default=1, help="of the first world (default: %(default)s)")
    given = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    figures, seed = Figures(), int(given.seed)
    while figures.ends.total() < given.ends:
        with playing(seed=seed, figures=figures) as acts:
            acts.play(ends=min(_ENDS_OF_A_WORLD, given.ends - figures.ends.total()))
            acts.come_to_an_end()
        print(f"seed {seed}: {figures}", flush=True)
        seed += 1


if __name__ == "__main__":
    main()
