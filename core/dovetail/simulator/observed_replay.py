"""The pods that a cluster has, replayed in its own order, which must meet their starts, and by Dovetail's queue.

Both replays have the same arrivals, run times and nodes, and differ in the policy alone. Kubernetes says when a pod
came, was bound and ended; pods that were deleted are missing. A pod of a job that Kueue held came when the job did, and
the first replay keeps Kueue's quotas. Pure; time is simulated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from math import inf
from statistics import fmean, median
from typing import Final

import msgspec

from dovetail import names
from dovetail.answers.observe import Forecast, ForecastPod, ReplaySums
from dovetail.api.builtin import Node, Pod, is_terminated
from dovetail.cluster.observed import PlacedPod
from dovetail.cluster.view import ClusterView
from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.ranking import Ranking
from dovetail.engine.score.fit_cache import FitCache
from dovetail.formats.quantities import QuantityError
from dovetail.formats.timestamps import moment, timestamp
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import ask_of_pod
from dovetail.pods.node_affinity import admits
from dovetail.pods.tenancy import controller_of
from dovetail.queue.model.candidates import DAY_SECONDS, Candidate, Sites
from dovetail.simulator.kueue_queues import REQUEUE_SECONDS, KueueQueues
from dovetail.simulator.queue_replay import Policy, Running, Scene, Submission, easy_backfill, play

WITHIN_SECONDS: Final = 10.0
# The part of the starts that the replay in the cluster's own order must meet before a comparison means anything.
TRUSTED: Final = 0.95
_HOUR_SECONDS: Final = 3600.0
# Longer than any replay: a pod that still runs holds its devices to the end of it.
_STILL_RUNS: Final = 1e9


_BY_KUEUE: Final = (
    "{count} pods were admitted by Kueue: they came when their job did, and the first replay keeps Kueue's quotas of "
    "GPUs; the second has none"
)
_OPENED: Final = "Replayed as open, because pods of the report started there before the cordon: {nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One pod's own times, in seconds since the first pod came; None for what has not happened.

    Of a pod that Kueue has admitted, `queue` is the ClusterQueue, `reserved` when its job was given quota, and
    `released` when others could have it; otherwise empty and None.
    """

    pod: PlacedPod
    ask: Ask
    queue: str
    reserved: float | None
    released: float | None
    came: float
    bound: float | None
    ended: float | None

    @property
    def ran_seconds(self) -> float | None:
        """How long it held its devices, or its job the quota; None while it does, and before."""
        over = self.ended if self.released is None else self.released
        return None if self.bound is None or over is None else max(0.0, over - self.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """What both replays start from."""

    submissions: Sequence[Submission]
    sites: Sites
    ledger: Callable[[], Ledger]
    histories: Mapping[str, History] = field(default_factory=dict)


def forecast(
    nodes: Sequence[Node], *, pods: Sequence[PlacedPod], now: datetime, kueue: KueueQueues | None = None
) -> Forecast | None:
    """The replays of all pods with devices of a plugin; None if the cluster has none."""
    kueue = kueue or KueueQueues()
    histories, notes = histories_of(pods, kueue=kueue, now=now)
    if not histories:
        return None
    nodes, opened = _open(nodes, histories=histories)
    notes += [_OPENED.format(nodes=", ".join(opened))] if opened else []
    stage = _stage(nodes, pods=pods, histories=histories)
    first = min(moment(kueue.arrival(each.pod)) for each in histories)
    until = (now - first).total_seconds()
    ours = partial(easy_backfill, sites=stage.sites)
    theirs, their_sums = _run(stage, policy=OwnOrder(stage.histories, sites=stage.sites, kueue=kueue), until=until)
    sooner, our_sums = _run(stage, policy=ours, until=until)
    items = [_item(each, theirs=theirs, ours=sooner, until=until) for each in histories]
    met = [_meets(each, theirs=theirs, until=until) for each in histories]
    return Forecast(
        as_of=timestamp(now),
        since=timestamp(first),
        within_seconds=WITHIN_SECONDS,
        reproduced=round(sum(met) / len(met), 3),
        trusted=sum(met) >= TRUSTED * len(met),
        own_order=their_sums,
        dovetail=our_sums,
        observed_mean_wait=round(fmean(each.waited for each in items), 1),
        sooner=sum(_differs(each, by=-WITHIN_SECONDS) for each in items),
        later=sum(_differs(each, by=WITHIN_SECONDS) for each in items),
        items=sorted(items, key=lambda each: (_gain(each), each.created, each.name)),
        notes=notes,
    )


def histories_of(pods: Iterable[PlacedPod], *, kueue: KueueQueues, now: datetime) -> tuple[list[History], list[str]]:
    """The pods that ask for devices of a plugin, by their arrival, and what is left out."""
    found: list[tuple[PlacedPod, Ask]] = []
    unread = gated = 0
    for pod in pods:
        ask = _ask(pod)
        if ask is None:
            unread += _asks_otherwise(pod)
        elif pod.spec.scheduling_gates:
            gated += 1
        else:
            found.append((pod, ask))
    notes = [f"{unread} pods ask in words that this replay does not know, such as parts of GPUs"] if unread else []
    notes += [f"{gated} pods are left out: a gate keeps schedulers off them"] if gated else []
    if not found:
        return [], notes
    first = min(moment(kueue.arrival(pod)) for pod, _ in found)
    histories = [_history(pod, ask=ask, kueue=kueue, first=first, now=now) for pod, ask in found]
    if admitted := sum(bool(each.queue) for each in histories):
        notes.append(_BY_KUEUE.format(count=admitted))
    return sorted(histories, key=lambda each: (each.came, each.pod.metadata.name)), notes


def _ask(pod: Pod) -> Ask | None:
    try:
        ask = ask_of_pod(pod, ranking=Ranking())
    except (RequestError, QuantityError):
        return None
    return ask if ask is not None and ask.gpu is not None and ask.resource else None


def _asks_otherwise(pod: Pod) -> bool:
    limits = [name for each in pod.spec.containers for name in each.resources.limits]
    annotated = {"gpu-fraction", "gpu-memory", names.REQUEST} & pod.metadata.annotations.keys()
    return bool(annotated) or any("gpu" in name for name in limits)


def _history(pod: PlacedPod, *, ask: Ask, kueue: KueueQueues, first: datetime, now: datetime) -> History:
    said = (each for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "True")
    bound = next((each.last_transition_time for each in said), None)
    terminated = (each.state.terminated for each in pod.status.container_statuses)
    ends = [each.finished_at for each in terminated if each is not None and each.finished_at is not None]
    ended = max(ends, default=None) if is_terminated(pod) else None

    def seconds(text: str | None) -> float | None:
        return None if text is None else (moment(text) - first).total_seconds()

    came = seconds(kueue.arrival(pod))
    assert came is not None, "every object has a creation time"
    over = seconds(ended) if ended is not None else ((now - first).total_seconds() if is_terminated(pod) else None)
    quota = kueue.quota_times(pod)
    released = None if quota is None else seconds(quota[1])
    return History(
        pod=pod,
        ask=ask,
        queue=kueue.queue_of(pod),
        reserved=None if quota is None else seconds(quota[0]),
        released=None if released is None else released + REQUEUE_SECONDS,
        came=came,
        bound=seconds(bound) if pod.spec.node_name else None,
        ended=over,
    )


def _open(nodes: Sequence[Node], *, histories: Sequence[History]) -> tuple[list[Node], list[str]]:
    """The nodes, without cordons where replayed pods started, and the names of these: no object says since when."""
    used = {each.pod.spec.node_name for each in histories}
    opened = [node.metadata.name for node in nodes if node.spec.unschedulable and node.metadata.name in used]
    spec = {name: node.spec for node in nodes if (name := node.metadata.name) in opened}
    return [
        msgspec.structs.replace(node, spec=msgspec.structs.replace(spec[node.metadata.name], unschedulable=False))
        if node.metadata.name in spec
        else node
        for node in nodes
    ], opened


def _stage(nodes: Sequence[Node], *, pods: Sequence[PlacedPod], histories: Sequence[History]) -> _Stage:
    replayed = {each.pod.metadata.uid for each in histories}
    others = [pod for pod in pods if pod.metadata.uid not in replayed]
    sites: dict[str, tuple[str, ...]] = {}
    submissions = [_submission(each, histories=histories, nodes=nodes, sites=sites) for each in histories]

    def ledger() -> Ledger:
        view = ClusterView(ledger=Ledger())
        for node in nodes:
            view.node_changed(node)
        view.pods_listed(others)
        return view.ledger

    known = {each.pod.metadata.uid: each for each in histories}
    return _Stage(submissions=submissions, sites=sites, ledger=ledger, histories=known)


def _submission(
    history: History, *, histories: Sequence[History], nodes: Sequence[Node], sites: dict[str, tuple[str, ...]]
) -> Submission:
    meta, spec = history.pod.metadata, history.pod.spec
    allowed = tuple(node.metadata.name for node in nodes if admits(node, pod_spec=spec.constraints))
    site = ",".join(allowed)
    sites[site] = allowed
    ran = _STILL_RUNS if history.bound is not None and history.ended is None else history.ran_seconds
    return Submission(
        job=Candidate(
            key=meta.uid,
            ask=history.ask,
            priority=spec.priority or 0,
            created=meta.creation_timestamp,
            name=f"{meta.namespace}/{meta.name}",
            site=site,
            run_seconds=DAY_SECONDS if spec.active_deadline_seconds is None else spec.active_deadline_seconds,
            limited=spec.active_deadline_seconds is not None,
        ),
        at_seconds=history.came,
        ran_seconds=_likely(history, histories=histories) if ran is None else ran,
    )


def _likely(history: History, *, histories: Sequence[History]) -> float:
    """How long a pod that has not started would run: the median of its controller's pods, else of all."""
    mine = controller_of(history.pod)
    known = [(each, each.ran_seconds) for each in histories if each.ran_seconds is not None]
    same = [ran for each, ran in known if mine is not None and controller_of(each.pod) == mine]
    return median(same or [ran for _, ran in known] or [_STILL_RUNS])


class OwnOrder:
    """The cluster's own scheduler, as far as it decided: pods in the order in which it bound them, on its own nodes.

    When a pod starts is not given: as soon as the books of its node have room for it. In a queue of Kueue's it is first
    given quota, in the queue's order, and keeps that while it waits for its node. One that its scheduler never bound
    may start wherever it is admitted, after all others. So a start that comes too early shows a cause that the books do
    not have, such as a gang, and one that comes too late shows a wrong book or run time.
    """

    def __init__(self, histories: Mapping[str, History], *, sites: Sites, kueue: KueueQueues) -> None:
        self._histories = histories
        self._sites = sites
        self._kueue = kueue
        # Kueue gives quota to one queue's jobs in turn: how many of its queue have it before each pod.
        self._ranks = _ranks(sorted(histories, key=self._quota_turn), histories=histories)
        self._admitted = set[str]()
        self._given = Counter[str]()
        # Refusals, with the change of the node after which each was given: most ends concern one node.
        self._refused: dict[tuple[str, Ask], int] = {}

    def __call__(self, scene: Scene) -> Iterable[tuple[str, Sequence[Claim]]]:
        """The pods that start now."""
        ledger = scene.ledger.copy()
        fits, filled = FitCache(ledger), set[tuple[str, Ask]]()
        self._admit(scene)
        for key in sorted(scene.waiting, key=self._turn):
            history = self._histories[key]
            job, node = scene.waiting[key].job, history.pod.spec.node_name
            if history.queue and key not in self._admitted:
                continue
            for name in [node] if node else self._sites[job.site]:
                asked, changed = (name, job.ask), scene.ledger.changed_at(name)
                if asked in filled or self._refused.get(asked) == changed:
                    continue
                found = fits.check(job.ask, node=name, key=key)
                if isinstance(found, Fit):
                    claim = replace(found.claim, key=f"{key}/0")
                    ledger.commit(claim)
                    yield key, [claim]
                    break
                filled.add(asked)
                self._refused[asked] = changed

    def _admit(self, scene: Scene) -> None:
        """Give quota to the pods whose turn it is. It is theirs while they wait for a node, and while they run."""
        used = Counter[tuple[str, str]]()
        for key in [*scene.running, *(self._admitted & scene.waiting.keys())]:
            history = self._histories[key]
            used[history.queue, history.ask.resource] += _devices_of(history)
        for key in sorted(scene.waiting.keys() - self._admitted, key=self._quota_turn):
            history, count = self._histories[key], _devices_of(self._histories[key])
            if not history.queue or self._ranks[key] > self._given[history.queue]:
                continue
            if self._kueue.has_quota(history.queue, resource=history.ask.resource, count=count, used=used):
                self._admitted.add(key)
                self._given[history.queue] += 1
                used[history.queue, history.ask.resource] += count

    def _quota_turn(self, key: str) -> tuple[float, float, str]:
        history = self._histories[key]
        _, came, name = self._turn(key)
        return inf if history.reserved is None else history.reserved, came, name

    def _turn(self, key: str) -> tuple[float, float, str]:
        history = self._histories[key]
        return inf if history.bound is None else history.bound, history.came, history.pod.metadata.name


def _run(stage: _Stage, *, policy: Policy, until: float) -> tuple[dict[str, float], ReplaySums]:
    """The starts of a replay up to now, by UID, and its sums."""
    idle = _Idle(until=until)
    within = [each for each in stage.submissions if each.at_seconds <= until]
    starts = play(within, ledger=stage.ledger(), policy=policy, watch=idle.watch)
    starts = {key: at for key, at in starts.items() if at <= until}
    waits = [(starts.get(key, until) - each.came) for key, each in stage.histories.items()]
    sums = ReplaySums(
        started=len(starts),
        mean_wait=round(fmean(max(0.0, wait) for wait in waits), 1),
        idle_device_hours=round(idle.hours(), 2),
    )
    return starts, sums


class _Idle:
    """Sums up devices that are free while a pod waits, up to a time."""

    def __init__(self, *, until: float) -> None:
        self._until = until
        self._at = 0.0
        self._idle = 0
        self._device_seconds = 0.0

    def watch(self, scene: Scene) -> None:
        """Note the queue after a cycle."""
        self._to(min(scene.now, self._until))
        totals = scene.ledger.totals()
        held = sum(_held(run) for run in scene.running.values())
        self._idle = max(0, totals.devices - held) if scene.waiting else 0

    def hours(self) -> float:
        """Device hours up to the end."""
        self._to(self._until)
        return self._device_seconds / _HOUR_SECONDS

    def _to(self, now: float) -> None:
        self._device_seconds += self._idle * max(0.0, now - self._at)
        self._at = max(self._at, now)


def _held(run: Running) -> int:
    return 0 if run.of.job.ask.gpu is None else run.of.job.ask.gpu.count


def _ranks(ordered: Iterable[str], *, histories: Mapping[str, History]) -> dict[str, int]:
    """How many pods of its own queue come before each pod."""
    before, found = Counter[str](), dict[str, int]()
    for key in ordered:
        found[key] = before[histories[key].queue]
        before[histories[key].queue] += 1
    return found


def _devices_of(history: History) -> int:
    return 0 if history.ask.gpu is None else history.ask.gpu.count


def _meets(history: History, *, theirs: Mapping[str, float], until: float) -> bool:
    """Whether the replay in the cluster's own order meets what the pod did: its start, or that it waits."""
    replayed = theirs.get(history.pod.metadata.uid, until)
    return abs(replayed - (until if history.bound is None else history.bound)) <= WITHIN_SECONDS


def _item(history: History, *, theirs: Mapping[str, float], ours: Mapping[str, float], until: float) -> ForecastPod:
    meta, gpu = history.pod.metadata, history.ask.gpu
    owner = controller_of(history.pod)

    def waited(starts: Mapping[str, float]) -> float | None:
        return None if meta.uid not in starts else round(starts[meta.uid] - history.came, 1)

    return ForecastPod(
        namespace=meta.namespace,
        name=meta.name,
        owner="" if owner is None else f"{owner.kind}/{owner.name}",
        devices=0 if gpu is None else gpu.count,
        resource=history.ask.resource,
        created=meta.creation_timestamp,
        started=history.bound is not None,
        waited=round((until if history.bound is None else history.bound) - history.came, 1),
        replayed=waited(theirs),
        under_dovetail=waited(ours),
    )


def _differs(item: ForecastPod, *, by: float) -> bool:
    return _gain(item) < by if by < 0 else _gain(item) > by


def _gain(item: ForecastPod) -> float:
    """By how many seconds a pod starts later under Dovetail than in the cluster's own order; negative for sooner."""
    if item.replayed is None and item.under_dovetail is None:
        return 0.0
    theirs = _STILL_RUNS if item.replayed is None else item.replayed
    ours = _STILL_RUNS if item.under_dovetail is None else item.under_dovetail
    return ours - theirs
