"""The fewest victims after whose end a job provably starts. Pure.

The fewest go, then those of the lowest priority, then the youngest.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, combinations, islice
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.backfill.reservation import Reservation, kept_now
from dovetail.queue.backfill.residual import JobReservations
from dovetail.queue.model.candidates import Candidate, Leaving, NoRoom, Room, Sites, find_room
from dovetail.queue.preemption.negative_cache import Question

# The most sets of victims that are tried one by one. Beyond that, victims are added until the job fits, and reprieved
# again where it fits without them.
_SETS: Final = 64
# The number of nodes on which that search is tried.
_NODES: Final = 32


def without_pause() -> None:
    """Go on at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Gives what reservations for others leave of a ledger to a job.

    - `kept`: these reservations, on a ledger from which victims may have left
    - `leaving`: when claims are expected to end
    """

    kept: Callable[[Ledger], Sequence[Reservation]]
    leaving: Collection[Leaving]

    def __call__(self, ledger: Ledger) -> Ledger:
        """A copy of the ledger without what is kept."""
        left = ledger.copy()
        for each in self.kept(ledger):
            # One copy for all: of forty plans of moves under way, each is proven next to all others.
            left.commit_all(kept_now(each, ledger=left, leaving=self.leaving))
        return left


def residual_for(
    job: Candidate,
    *,
    reservations: JobReservations,
    windows: Windows,
    leaving: Mapping[str, Leaving],
    start_seconds: float,
) -> Residual | None:
    """What reservations leave of a ledger to a job that starts at this time of the cycle; None where all of it.

    `leaving` has the expected ends by the keys of their claims, as they are when a ledger is given.
    """
    delayed = reservations.delayed_by(job, start_seconds=start_seconds)
    if not windows.wanted and not delayed:
        return None

    def kept(ledger: Ledger) -> list[Reservation]:
        ends = list(leaving.values())
        return [*windows.after(job, ledger=ledger, leaving=ends, start_seconds=start_seconds), *delayed]

    return Residual(kept=kept, leaving=leaving.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A job that runs, or a preempted one whose pods are not all gone.

    - `key`: UID of the job
    - `priority`: its effective priority
    - `run_seconds`: how long it has run
    - `claims`: keys of its claims in the ledger
    - `preempted`: how often it has been preempted
    - `yields_to`: key of the job that it is preempted for; empty otherwise
    - `left`: whether a preempted job has stopped
    - `preemptible`: whether it may be ended for others
    - `checkpoint_seconds`: it saves its work at least this often; None if it does not say so
    - `moves`: whether it ends to restart elsewhere, where room is held for it
    - `covered_pods`: how many of its pods each PodDisruptionBudget covers
    """

    key: str
    priority: int
    run_seconds: float
    claims: tuple[str, ...]
    preempted: int = 0
    yields_to: str = ""
    left: bool = False
    preemptible: bool = True
    checkpoint_seconds: float | None = None
    moves: bool = False
    covered_pods: Mapping[str, int] = field(default_factory=dict)

    @property
    def lost_seconds(self) -> float:
        """The run time that its end loses at most."""
        saved = self.checkpoint_seconds
        return self.run_seconds if saved is None else min(self.run_seconds, saved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Once the victims have left, the job has this room."""

    victims: tuple[Running, ...]
    room: Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """Tests which jobs must leave so that one job has room.

    The ledger is unchanged when a method returns.

    `allows` says whether limits let the job start without some jobs; None where no limit keeps it. `together` chooses
    those that may end together, the first ones first; None where all may that may alone. `pause` is called before each
    placement of the job, which takes the longer the larger it is.
    """

    job: Candidate
    ledger: Ledger
    sites: Sites
    residual: Residual | None
    allows: Callable[[Sequence[Running]], bool] | None = None
    together: Callable[[Sequence[Running]], Sequence[Running]] | None = None
    pause: Callable[[], None] = without_pause

    def question(self, potential_victims: Sequence[Running], *, guarantees: tuple[object, ...] = ()) -> Question:
        """The inputs that decide whether preemption of some of these jobs makes room.

        `guarantees` says which of them may end together; empty where all may.
        """
        nodes = self.sites.get(self.job.site)
        return Question(
            shape=self.job.shape,
            potential_victims=tuple((each.key, each.claims) for each in potential_victims),
            nodes=None if nodes is None else tuple(nodes),
            content=self.ledger.content(),
            guarantees=guarantees,
        )

    def among(self, potential_victims: Sequence[Running], *, most: int) -> Proof | None:
        """The proof with the fewest of the potential_victims jobs, and at most `most` of them."""
        if self.residual is not None and self.without(potential_victims) is None:
            return None
        for victims in _sets(potential_victims, most=most):
            if len(self._together(victims)) < len(victims):
                continue
            proof = self.without(victims)
            if proof is not None:
                return proof
        found = self.fewest(potential_victims)
        return found if found is not None and len(found.victims) <= most else None

    def _together(self, victims: Sequence[Running]) -> Sequence[Running]:
        return victims if self.together is None else self.together(victims)

    def without(self, victims: Sequence[Running], *, nodes: Sequence[str] | None = None) -> Proof | None:
        """The room of the job once the victims have left, on `nodes` where given.

        None where there is none.
        """
        if self.allows is not None and not self.allows(victims):
            return None
        self.pause()
        sites = self.sites if nodes is None else {self.job.site: nodes}
        with self.ledger.without(key for each in victims for key in each.claims):
            left = self.ledger if self.residual is None else self.residual(self.ledger)
            found = find_room(self.job, ledger=left, fit_cache=FitCache(left), sites=sites)
        return None if isinstance(found, NoRoom) else Proof(victims=tuple(victims), room=found)

    def kept_back(self, potential_victims: Sequence[Running]) -> Reservation | None:
        """The first reservation that takes the room that the job gets from these jobs; None where it gets none."""
        if self.residual is None or replace(self, residual=None).without(potential_victims) is None:
            return None
        with self.ledger.without(key for each in potential_victims for key in each.claims):
            kept = self.residual.kept(self.ledger)
        for count, each in enumerate(kept, start=1):
            first = Residual(kept=_always(kept[:count]), leaving=self.residual.leaving)
            if replace(self, residual=first).without(potential_victims) is None:
                return each
        return None

    def reprieved(self, proof: Proof, *, nodes: Sequence[str] | None = None) -> Proof:
        """The proof without the victims that are not necessary, tried from the last."""
        for victim in reversed(proof.victims):
            if victim.left:
                continue
            others = [each for each in proof.victims if each is not victim]
            proof = self.without(others, nodes=nodes) or proof
        return proof

    def fewest(self, potential_victims: Sequence[Running]) -> Proof | None:
        """The fewest of many jobs, where there are too many sets to try each.

        None where no room is found.

        Victims are added one by one until the job fits, in their order and the largest first; for a job of one worker,
        node by node. Then the unnecessary ones are reprieved.
        """
        by_size = sorted(potential_victims, key=lambda each: -self._milli(each))
        if self.job.workers == 1:
            found = self._on_one_node(by_size)
        else:
            found = [proof for each in (potential_victims, by_size) if (proof := self._by_adding(each)) is not None]
        return min(found, key=lambda proof: _cost(proof.victims), default=None)

    def _by_adding(self, ordered: Sequence[Running], *, nodes: Sequence[str] | None = None) -> Proof | None:
        ordered = self._together(ordered)
        low, high = 1, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if self.without(ordered[:middle], nodes=nodes) is None:
                low = middle + 1
            else:
                high = middle
        proof = self.without(ordered[:low], nodes=nodes)
        return None if proof is None else self.reprieved(proof, nodes=nodes)

    def _on_one_node(self, ordered: Sequence[Running]) -> list[Proof]:
        """A proof for each of the most promising nodes that the job may use and that have victims."""
        there: dict[str, list[Running]] = {}
        for each in ordered:
            for node in {claim.node for key in each.claims if (claim := self.ledger.claim(key)) is not None}:
                there.setdefault(node, []).append(each)
        allowed = self.sites.get(self.job.site)
        if allowed is not None:
            there = {node: there[node] for node in allowed if node in there}
        likely = sorted(there, key=lambda node: _cost(self._at_least(there[node])))
        # A search that respects reservations costs more: the one without them rules most nodes out.
        bare = replace(self, residual=None)
        able = (node for node in likely if bare.without(self._together(there[node]), nodes=[node]) is not None)
        tried = (self._by_adding(there[node], nodes=[node]) for node in islice(able, _NODES))
        return [proof for proof in tried if proof is not None]

    def _at_least(self, ordered: Sequence[Running]) -> Sequence[Running]:
        """The first of them that must leave where nothing else on the node is free."""
        wanted = 0 if self.job.ask.gpu is None else self.job.ask.gpu.total_milli
        left = accumulate(self._milli(each) for each in ordered)
        enough = next((count for count, milli in enumerate(left, start=1) if milli >= wanted), len(ordered))
        return ordered[:enough]

    def _milli(self, victim: Running) -> int:
        return sum(claim.milli for key in victim.claims if (claim := self.ledger.claim(key)) is not None)


def _sets(potential_victims: Sequence[Running], *, most: int) -> Iterator[tuple[Running, ...]]:
    """Sets of victims, small ones first, at most `_SETS`.

    A size is tried completely or not at all.
    """
    left = _SETS
    for size in range(1, most + 1):
        found = list(_up_to(combinations(potential_victims, size), count=left + 1))
        if len(found) > left:
            return
        yield from found
        left -= len(found)


def _up_to(sets: Iterable[tuple[Running, ...]], *, count: int) -> Iterator[tuple[Running, ...]]:
    for _, each in zip(range(count), sets, strict=False):
        yield each


def _cost(victims: Sequence[Running]) -> tuple[int, list[tuple[int, float, str]]]:
    """The order of preference: the fewest, then those of the lowest priority, then the youngest."""
    return len(victims), sorted((each.priority, each.run_seconds, each.key) for each in victims)


def _always(kept: Sequence[Reservation]) -> Callable[[Ledger], Sequence[Reservation]]:
    return lambda _ledger: kept
