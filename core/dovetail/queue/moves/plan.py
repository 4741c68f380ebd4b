"""A plan of moves: who moves where, what starts then, what it costs, and why it is a net gain. Values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dovetail.api.reasons.clause import Sentence
from dovetail.engine.model.claims import Claim
from dovetail.pods.disruption_budgets import may_end_together
from dovetail.queue.model.candidates import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """A running job that may restart elsewhere.

    - `job`: the job as a candidate for its new place: its request, workers and nodes
    - `claims`: keys of what it holds in the ledger
    - `run_seconds`: how long it has run
    - `saved_every_seconds`: it saves its work at least this often; infinite if it does not say so
    - `covered_pods`: how many of its pods each PodDisruptionBudget covers
    """

    job: Candidate
    claims: tuple[str, ...]
    run_seconds: float
    saved_every_seconds: float = float("inf")
    covered_pods: Mapping[str, int] = field(default_factory=dict)

    def unsaved_seconds(self, *, grace_seconds: float) -> float:
        """What the job did since it last saved its work, at most, if it ends after the grace."""
        return min(self.run_seconds + grace_seconds, self.saved_every_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a plan may do.

    - `grace_seconds`: how long a job may continue once it knows that it moves
    - `most_moves`: jobs that one plan moves at most
    - `moves_left`: jobs that all plans of one moment move at most; None for no limit
    - `least_gain`: device-seconds that a plan must gain beyond what it loses
    - `disruptions_allowed`: how many pods may end, by PodDisruptionBudget
    """

    grace_seconds: float = 30.0
    most_moves: int = 8
    moves_left: int | None = None
    least_gain: float = 0.0
    disruptions_allowed: Mapping[str, int] = field(default_factory=dict)

    def within_budgets(self, movers: Iterable[Movable]) -> bool:
        """Whether no PodDisruptionBudget is broken if all of them end at once."""
        covered = [each.covered_pods for each in movers]
        return len(may_end_together(covered, allowed=self.disruptions_allowed)) == len(covered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One job restarts elsewhere.

    - `mover`: the job
    - `held`, `claims`: what its workers hold, and what they will hold
    - `lost_device_seconds`: unsaved work and the restart, for all its devices, at most
    - `away_seconds`: from the end of its pods to its start elsewhere, at most
    """

    mover: Movable
    held: tuple[Claim, ...]
    claims: tuple[Claim, ...]
    lost_device_seconds: float
    away_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Moves after which a waiting job starts, as proven for the ledger and the queue of one moment.

    - `starts`: the job that starts, on `claims`, in `in_seconds`
    - `otherwise_seconds`: its estimated start without the plan; None where none is known
    - `moves`: the jobs that move
    - `lost_device_seconds`: what all moves lose, at most
    - `gained_device_seconds`: what the job uses of its devices before it would start otherwise
    - `compared`: how many other waiting jobs start no later than without the plan
    """

    starts: Candidate
    claims: tuple[Claim, ...]
    in_seconds: float
    otherwise_seconds: float | None
    moves: tuple[Move, ...]
    lost_device_seconds: float
    gained_device_seconds: float
    compared: int

    @property
    def net_device_seconds(self) -> float:
        """The gain beyond the loss."""
        return self.gained_device_seconds - self.lost_device_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Why no plan holds: clauses that end a sentence about the job."""

    why: Sentence
