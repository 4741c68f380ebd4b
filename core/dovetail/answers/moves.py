"""A plan of moves: who restarts elsewhere, what starts then, what that costs. Types only."""

from dovetail.answers import Row
from dovetail.answers.jobs import JobReference
from dovetail.api.gpujob import Moves
from dovetail.api.meta import MessageDetail


class PlacedWorker(Row, frozen=True, kw_only=True):
    """A worker's node, and the indexes of its devices there.

    Those of a plan may change: the extender chooses the devices of a node when it binds the pod.
    """

    node: str
    indexes: list[int]


class MoveRow(Row, frozen=True, kw_only=True):
    """A running job that restarts elsewhere. `job` is null for one of a namespace that you may not list.

    `moves` says whether the job may move without a person's decision: as it says itself, or by the configuration.
    `source` and `destination` have its workers now and then. `lostDeviceSeconds` is what it loses at most, over all its
    devices: what it did since it last saved its work, and the restart. `savesEverySeconds` is null where the job does
    not say so: then all its work counts as lost. It is away for at most `awaySeconds`.
    """

    job: JobReference | None
    moves: Moves
    source: list[PlacedWorker]
    destination: list[PlacedWorker]
    saves_every_seconds: int | None
    lost_device_seconds: float
    away_seconds: float


class MovesAnswer(Row, frozen=True, kw_only=True):
    """Whether moves start a waiting job, and which.

    - `summary`: the answer in one sentence, and `details` its clauses as codes and parameters
    - `holds`: whether there is a plan, proven for the cluster as it was read
    - `moves`: the jobs that move; empty without a plan
    - `workers`: where the job starts, worker by worker
    - `startsInSeconds`: when it starts by the plan; null without one
    - `otherwiseSeconds`: its estimated start without moves; null where none is known
    - `lostDeviceSeconds`, `gainedDeviceSeconds`: what the moves lose, and what the job uses before it would start
      otherwise
    - `compared`: how many other waiting jobs start no later than without the moves
    - `movable`: how many running jobs may move
    - `notes`: what the answer does not count, and `noteDetails` the clauses of each note
    """

    job: JobReference
    summary: str
    details: list[MessageDetail]
    holds: bool
    moves: list[MoveRow]
    workers: list[PlacedWorker]
    starts_in_seconds: float | None
    otherwise_seconds: float | None
    lost_device_seconds: float
    gained_device_seconds: float
    compared: int
    movable: int
    notes: list[str]
    note_details: list[list[MessageDetail]]

    def __str__(self) -> str:
        return self.summary


class MovesList(Row, frozen=True, kw_only=True):
    """Moves for several waiting jobs: the plans of all of them hold together."""

    items: list[MovesAnswer]

    def __str__(self) -> str:
        return "\n".join(each.summary for each in self.items)


class MovesApplied(Row, frozen=True, kw_only=True):
    """How it went with a job for which moves were to be carried out.

    - `plan`: its plan, as it was proven before anything ended; without one, nothing was requested
    - `started`: whether the job runs
    - `phase`, `message`: its state at the end of the wait
    - `nodes`: where it runs; empty if it does not
    - `seconds`: from the request to the start, or to the end of the wait; 0 without a request
    """

    plan: MovesAnswer
    started: bool
    phase: str
    message: str
    nodes: list[str]
    seconds: float


class MovesAppliedList(Row, frozen=True, kw_only=True):
    """How it went with each of several jobs."""

    items: list[MovesApplied]
