"""Moves in the experiment: a pod that fits nowhere starts where others can move on, if that is a net gain.

The decision knows what an operator would know: when each pod started, how often it saves its work, and how long pods
run on average. It never reads when a pod leaves, nor when it last saved its work.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.fragmentation.arrivals import Online
from dovetail.fragmentation.capacity import HOST, Columns
from dovetail.fragmentation.ph_terms import PHAppraisal
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.fragmentation.priced_headroom import PH
from dovetail.queue.moves.candidates import Candidate, candidates
from dovetail.queue.moves.residents import RESTART_SECONDS, Residents

# How many candidates are tried on the columns, and how many of those that hold are compared.
_TRIES: Final = 96
_COMPARED: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesSettings:
    """When pods move.

    A plan is worth, in GPUs for one lifetime: `starts` for each GPU of the pod that starts, `fragments` for each GPU of
    fragments that it removes, less what is lost, and `move` for each pod that moves. For a pod of several GPUs,
    `starts_several` counts instead of `starts`: what a small pod leaves idle is soon requested by another one.

    - `lifetime_seconds`: how long pods run on average: one unit of the experiment's time
    - `saved_every_seconds`: how often pods save their work; infinite where they never do
    - `most_per_100`: the most moves in 100 arrivals, a budget that grows with each arrival
    """

    lifetime_seconds: float = 27_118.0
    saved_every_seconds: float = 1800.0
    starts: float = 0.3
    starts_several: float = 1.0
    fragments: float = 1.0
    move: float = 1.15
    most_per_100: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A candidate that holds: where the pod goes, and where each pod that moves goes."""

    start: Choice
    moves: Mapping[str, Choice]


class Moves:
    """Finds moves for refused pods on the experiment's columns. Tell it of each pod that arrives, starts and leaves.

    `lost` has the time of each move, in lifetimes, and what it lost, in milli for one lifetime. `decision_seconds` has
    the time of each search by `clock`.
    """

    def __init__(
        self, columns: Columns, *, policy: Online, settings: MovesSettings, clock: Callable[[], float]
    ) -> None:
        self._columns = columns
        self._policy = policy
        self._settings = settings
        self._clock = clock
        self._residents = Residents(width=columns.left.shape[1])
        self._arrived = 0
        self.lost: list[tuple[float, float]] = []
        self.decision_seconds: list[float] = []

    def arrived(self) -> None:
        """Count an arrival."""
        self._arrived += 1

    def started(self, key: str, *, choice: Choice, at: float) -> None:
        """A pod has started."""
        settings = self._settings
        self._residents.add(
            key,
            parts=[choice],
            started=at * settings.lifetime_seconds,
            saved_every=settings.saved_every_seconds,
        )

    def left(self, key: str) -> Choice:
        """A pod has left; returns where it was."""
        (choice,) = self._residents.parts(key)
        self._residents.remove(key)
        return choice

    def start(self, shape: Shape, *, at: float) -> Choice | None:
        """Move pods so that this one fits, on the columns too; returns its place. None where nothing is gained.

        No pod moves for pods without GPUs, nor for those that are there at the beginning.
        """
        settings = self._settings
        left = settings.most_per_100 * self._arrived / 100 - len(self.lost)
        if not shape.gpus or at <= 0 or left < 1:
            return None
        began = self._clock()
        found = candidates(
            shape,
            columns=self._columns,
            residents=self._residents,
            now=at * settings.lifetime_seconds,
            move_seconds=settings.move * settings.lifetime_seconds,
        )
        best = self._best(shape, found=[each for each in found if len(each.keys) <= left])
        self.decision_seconds.append(self._clock() - began)
        if best is None:
            return None
        self._move(best, at=at)
        return best.start

    def _best(self, shape: Shape, *, found: Sequence[Candidate]) -> Tried | None:
        """The candidate that is worth most; None where none holds, or none is worth anything."""
        settings, before = self._settings, self._fragments()
        best, most, compared = None, 0.0, 0
        for each in found[:_TRIES]:
            tried = self._tried(shape, candidate=each)
            if tried is None:
                continue
            self._place(tried)
            removed = before - self._fragments()
            self._undo(tried)
            starts = settings.starts_several if shape.gpus > 1 else settings.starts
            worth = starts * shape.gpu_milli / WHOLE_MILLI + settings.fragments * removed
            worth -= each.cost / settings.lifetime_seconds
            if worth > most:
                best, most = tried, worth
            compared += 1
            if compared == _COMPARED:
                break
        return best

    def _fragments(self) -> float:
        """The fragments of the cluster for the learned mix, in GPUs."""
        gradient = self._terms.gradient
        gradient.sync()
        return float(gradient.fragmentation().sum()) / WHOLE_MILLI

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

    def _move(self, tried: Tried, *, at: float) -> None:
        """Let the pods of a plan move; the caller places the one that starts."""
        settings, now = self._settings, at * self._settings.lifetime_seconds
        for key in tried.moves:
            self._columns.release(self._residents.parts(key)[0])
        for key, choice in tried.moves.items():
            self._columns.place(choice)
            unsaved = self._residents.age_of(key, now=now) % settings.saved_every_seconds
            milli = choice.shape.gpu_milli
            self.lost.append((at, milli * (unsaved + RESTART_SECONDS) / settings.lifetime_seconds))
            self._residents.remove(key)
            self.started(key, choice=choice, at=at)


def _on_node(columns: Columns, *, shape: Shape, node: int) -> Choice | None:
    """The place on a node: a share on the fullest device where it fits, whole ones on the first free ones."""
    if (columns.spare[node, :HOST] < [shape.cpu_milli, shape.memory_mib]).any():
        return None
    left: list[int] = columns.left[node].tolist()
    fits = sorted((free, device) for device, free in enumerate(left) if free >= shape.share_milli)
    devices = tuple(sorted(device for _, device in fits[: shape.gpus]))
    return None if len(devices) < shape.gpus else Choice(shape=shape, node=node, devices=devices)
