"""Moves in the experiment: a pod that fits nowhere starts where others can move on, if that is a net gain.

The decision knows what an operator would know: when each pod started, how often it saves its work, and how long pods
run on average. It never reads when a pod leaves.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from dovetail.fragmentation.arrivals import Online
from dovetail.fragmentation.capacity import HOST, Columns
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.fragmentation.priced_headroom import PH
from dovetail.moves.candidates import Candidate, candidates
from dovetail.moves.residents import Residents

# How many candidates are tried on the columns, and how many of those that succeed are compared.
_TRIES: Final = 96
_COMPARED: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesSettings:
    """When pods move.

    - `lifetime_seconds`: how long pods run on average: one unit of the experiment's time
    - `saved_every_seconds`: how often pods save their work; infinite where they never do
    - `move_seconds`: the device-seconds that a move must gain beyond what it loses
    - `fragments`: how much a GPU of fragments that a plan removes weighs, in GPUs that start
    - `most_per_100`: moves in 100 arrivals, a budget that refills with each arrival
    - `least_gpus`: pods that request fewer GPUs make nobody move
    """

    lifetime_seconds: float = 27_118.0
    saved_every_seconds: float = 1800.0
    move_seconds: float = 0.0
    fragments: float = 0.05
    most_per_100: float = float("inf")
    least_gpus: float = 0.0


@dataclass(slots=True)
class MovesMade:
    """What moved: `lost` has the time of each, in lifetimes, and the device-seconds that its restart lost."""

    lost: list[tuple[float, float]] = field(default_factory=list)
    started: dict[str, int] = field(default_factory=dict)
    decision_seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A candidate that holds: where the pod goes, and where each job that moves goes."""

    start: Choice
    moves: Mapping[str, Choice]


class Moves:
    """Finds moves for refused pods. Tell it of each pod that starts and leaves."""

    def __init__(self, columns: Columns, *, policy: Online, settings: MovesSettings) -> None:
        self._columns = columns
        self._policy = policy
        self._settings = settings
        self._residents = Residents(width=columns.left.shape[1])
        self._numbers = count()
        self._arrived = 0
        self.made = MovesMade()

    def started(self, choice: Choice, *, at: float) -> str:
        """A pod has started; returns its key."""
        key = str(next(self._numbers))
        settings = self._settings
        self._residents.add(
            key,
            parts=[choice],
            started=at * settings.lifetime_seconds,
            saved_every=settings.saved_every_seconds,
        )
        return key

    def left(self, key: str) -> Choice:
        """A pod has left; returns where it was."""
        (choice,) = self._residents.parts(key)
        self._residents.remove(key)
        return choice

    def start(self, shape: Shape, *, at: float) -> Choice | None:
        """Move pods so that this one fits, on the columns too; returns its place. None where nothing is gained."""
        self._arrived += 1
        settings, gpus = self._settings, shape.gpu_milli / WHOLE_MILLI
        left = settings.most_per_100 * self._arrived / 100 - len(self.made.lost)
        if not shape.gpus or gpus < settings.least_gpus:
            return None
        began = time.process_time()
        found = candidates(
            shape,
            columns=self._columns,
            residents=self._residents,
            now=at * settings.lifetime_seconds,
            move_seconds=settings.move_seconds,
            most_cost=gpus * settings.lifetime_seconds,
        )
        best = self._best(shape, found=[each for each in found if len(each.keys) <= left])
        self.made.decision_seconds.append(time.process_time() - began)
        if best is None:
            return None
        self._make(best, at=at)
        return best.start

    def arrived(self) -> None:
        """A pod has arrived that fits."""
        self._arrived += 1

    def _best(self, shape: Shape, *, found: Sequence[Candidate]) -> Tried | None:
        """The candidate that costs least, with the fragments that it leaves; None where none holds."""
        best, best_cost, compared = None, float("inf"), 0
        weight = self._settings.fragments * self._settings.lifetime_seconds
        for each in found[:_TRIES]:
            tried = self._tried(shape, candidate=each)
            if tried is None:
                continue
            cost = each.cost + weight * self._waste_after(tried)
            if cost < best_cost:
                best, best_cost = tried, cost
            compared += 1
            if compared == _COMPARED:
                break
        return best

    def _waste_after(self, tried: Tried) -> float:
        """The fragments of the cluster, less the worth of what is left of its GPUs, after a candidate, in GPUs."""
        terms = self._terms
        self._place(tried)
        terms.sync()
        waste = terms.settings.gradient * float(terms.gradient.fragmentation().sum()) / WHOLE_MILLI
        waste -= terms.settings.residual * float(terms.worth[self._columns.left].sum())
        self._undo(tried)
        return waste

    @property
    def _terms(self) -> PHAppraisal:
        policy = self._policy.policy
        assert isinstance(policy, PH), "other policies price nothing"
        return policy.terms

    def _tried(self, shape: Shape, *, candidate: Candidate) -> Tried | None:
        """Where all go by the policy; None where one has no place. The columns are unchanged."""
        columns, residents = self._columns, self._residents
        before = {key: residents.parts(key)[0] for key in candidate.keys}
        for choice in before.values():
            columns.release(choice)
        placed: dict[str, Choice] = {}
        start = _on_node(columns, shape=shape, node=candidate.node)
        if start is not None:
            columns.place(start)
            for key in sorted(before, key=lambda key: (-before[key].shape.gpu_milli, -before[key].shape.cpu_milli)):
                found = self._policy.policy.choose(before[key].shape)
                if found is None:
                    break
                columns.place(found)
                placed[key] = found
            for choice in (start, *placed.values()):
                columns.release(choice)
        for choice in before.values():
            columns.place(choice)
        return None if start is None or len(placed) < len(before) else Tried(start=start, moves=placed)

    def _place(self, tried: Tried) -> None:
        for key in tried.moves:
            self._columns.release(self._residents.parts(key)[0])
        for choice in (tried.start, *tried.moves.values()):
            self._columns.place(choice)

    def _undo(self, tried: Tried) -> None:
        for choice in (tried.start, *tried.moves.values()):
            self._columns.release(choice)
        for key in tried.moves:
            self._columns.place(self._residents.parts(key)[0])

    def _make(self, tried: Tried, *, at: float) -> None:
        """Let the pods of a plan move; the caller places the one that starts."""
        now = at * self._settings.lifetime_seconds
        for key in tried.moves:
            self._columns.release(self._residents.parts(key)[0])
        for key, choice in tried.moves.items():
            self._columns.place(choice)
            self.made.lost.append((at, self._residents.lost_of(key, now=now)))
            self._residents.remove(key)
            self._residents.add(key, parts=[choice], started=now, saved_every=self._settings.saved_every_seconds)


def _on_node(columns: Columns, *, shape: Shape, node: int) -> Choice | None:
    """The place on a node: a share on the fullest device where it fits, whole ones on the first free ones."""
    if (columns.spare[node, :HOST] < [shape.cpu_milli, shape.memory_mib]).any():
        return None
    left: list[int] = columns.left[node].tolist()
    fits = sorted((free, device) for device, free in enumerate(left) if free >= shape.share_milli)
    devices = tuple(sorted(device for _, device in fits[: shape.gpus]))
    return None if len(devices) < shape.gpus else Choice(shape=shape, node=node, devices=devices)
