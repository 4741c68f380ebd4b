"""Several clusters over time: each has its queue, and a dispatcher chooses in whose queues a job waits.

Pure; time is simulated. Each queue is the one of `queue_replay`, with the same policy. No job runs on two clusters.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Protocol

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.topology import Level, Topology
from dovetail.queue.model.candidates import Sites
from dovetail.simulator.queue_replay import Policy, Running, Scene, Submission, easy_backfill

# The level of the network that a cluster is in the ledger of a whole fleet.
_CLUSTER: Final = Level(name="cluster", label="fleet/cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job of a team that uses the cluster `home`. It can run on the clusters of `data` only; empty means on each."""

    submission: Submission
    home: str
    data: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key of its job."""
        return self.submission.job.key

    def may_use(self, cluster: str) -> bool:
        """Whether the cluster has its data."""
        return not self.data or cluster in self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The cluster on which a job started, and when."""

    cluster: str
    at_seconds: float


class Dispatcher(Protocol):
    """Chooses the clusters in whose queues a job waits, once, at its submission.

    Of several, the first that admits the job runs it, and the job leaves the other queues. In a tie, the first of them
    in the dispatcher's order. Without a cluster, the job never starts. A dispatcher changes nothing.
    """

    def __call__(self, arrival: Arrival, *, clusters: Mapping[str, Scene]) -> Sequence[str]: ...


def play(
    arrivals: Iterable[Arrival],
    *,
    ledgers: Mapping[str, Ledger],
    dispatch: Dispatcher,
    policy: Policy = easy_backfill,
    ended: Callable[[Running], None] = lambda _run: None,
) -> dict[str, Started]:
    """Simulate the fleet.

    Returns where and when each job started, by key; jobs that never start are left out.

    Uses up `ledgers`, which are by the clusters' names. `ended` gets each run.
    """
    fleet = _Fleet(ledgers, policy=policy)
    coming = sorted(arrivals, key=lambda each: each.submission.at_seconds, reverse=True)
    while coming or fleet.is_running:
        now = min(coming[-1].submission.at_seconds if coming else inf, fleet.next_end_seconds)
        for run in fleet.advance(now):
            ended(run)
        while coming and coming[-1].submission.at_seconds <= now:
            arrival = coming.pop()
            fleet.submit(arrival.submission, clusters=dispatch(arrival, clusters=fleet.clusters))
        fleet.look()
    return fleet.started


class _Fleet:
    """The clusters at one moment, and the queues that have changed since the last look."""

    def __init__(self, ledgers: Mapping[str, Ledger], *, policy: Policy) -> None:
        self.clusters = {name: Scene(ledger=ledger) for name, ledger in ledgers.items()}
        self.started: dict[str, Started] = {}
        self._policy = policy
        self._copies: dict[str, Sequence[str]] = {}
        # Keys alone, in the order of the changes. Only a changed queue can start a job.
        self._changed: dict[str, None] = {}

    @property
    def is_running(self) -> bool:
        return any(scene.running for scene in self.clusters.values())

    @property
    def next_end_seconds(self) -> float:
        return min(scene.next_end_seconds for scene in self.clusters.values())

    def advance(self, now: float) -> list[Running]:
        """Go on to that time. Returns the runs that are over."""
        over = []
        for name, scene in self.clusters.items():
            scene.now = now
            ends = list(scene.end_due())
            if ends:
                self._changed[name] = None
            over += ends
        return over

    def submit(self, submission: Submission, *, clusters: Sequence[str]) -> None:
        """Add the job to these queues."""
        self._copies[submission.job.key] = clusters
        for name in clusters:
            self.clusters[name].waiting[submission.job.key] = submission
            self._changed[name] = None

    def look(self) -> None:
        """Let each changed queue decide, until none changes any more."""
        while self._changed:
            name = next(iter(self._changed))
            del self._changed[name]
            scene = self.clusters[name]
            for key, claims in list(self._policy(scene)):
                scene.start(key, claims=claims)
                self.started[key] = Started(cluster=name, at_seconds=scene.now)
                self._withdraw(key, of=name)

    def _withdraw(self, key: str, *, of: str) -> None:
        """Remove the job from all queues but that of the cluster that runs it."""
        for other in self._copies.pop(key):
            if other != of:
                del self.clusters[other].waiting[key]
                self._changed[other] = None


def one_cluster(arrivals: Iterable[Arrival], *, ledgers: Mapping[str, Ledger]) -> tuple[list[Arrival], Ledger, Sites]:
    """One queue over all clusters: the arrivals, ledger and sites of a cluster that has the nodes of all.

    A gang keeps within one of them by a topology rule, and a job within those that have its data by its site. The names
    of nodes must differ in the whole fleet.
    """
    whole, nodes = Ledger(), dict[str, list[str]]()
    for cluster, ledger in ledgers.items():
        nodes[cluster] = ledger.nodes()
        for name in nodes[cluster]:
            facts = ledger.facts(name)
            assert facts is not None, "the ledger has named this node"
            whole.set_node(replace(facts, labels={**facts.labels, _CLUSTER.label: cluster}))
            whole.set_devices(name, devices=list(ledger.devices(name)))
    found, sites = [], dict[str, list[str]]()
    for arrival in arrivals:
        site = ",".join(arrival.data)
        if site:
            sites[site] = [name for cluster in arrival.data for name in nodes[cluster]]
        found.append(replace(arrival, submission=_within_one(arrival.submission, site=site)))
    return found, whole, sites


def _within_one(submission: Submission, *, site: str) -> Submission:
    job = replace(submission.job, site=site)
    if job.workers > 1:
        gang = Topology(levels=(_CLUSTER,), required=_CLUSTER.name)
        job = replace(job, ask=replace(job.ask, topology=gang))
    return replace(submission, job=job)
