"""The plan of the queue: what runs, when jobs that wait start, what is kept for them, what is emptied. Types only."""

from dovetail.answers import Row
from dovetail.answers.jobs import JobReference
from dovetail.api.gpujob import AssignedDevice, Phase


class FilledGap(Row, frozen=True, kw_only=True):
    """The gap that a job uses: it ends by `until`, when room that is kept on its node is needed for `job`.

    `job` is null for a job of another tenant.
    """

    job: JobReference | None
    until: str


class PlannedWorkers(Row, frozen=True, kw_only=True):
    """The workers that are planned on a node. The queue plans nodes; devices are chosen when the pods are bound."""

    node: str
    workers: int


class PlanRow(Row, frozen=True, kw_only=True):
    """A job that runs, or that waits with an estimated start. `earliest` and `latest` are the estimate's bounds.

    `endsBy` is when its lease or its time limit ends it, null without either. `leavesAt` is when its pods end because
    of a preemption or a drain that is announced. `planned` are its nodes before it has devices.
    """

    namespace: str
    name: str
    number: int | None
    user: str
    phase: Phase
    request: str
    workers: int
    starts_at: str
    earliest: str | None
    latest: str | None
    ends_by: str | None
    leaves_at: str | None
    position: int | None
    nodes: list[str]
    devices: list[AssignedDevice]
    planned: list[PlannedWorkers]
    fills: FilledGap | None


class KeptRoom(Row, frozen=True, kw_only=True):
    """Room of a node that is kept for a waiting job, as requests in the compact text; `workers` start there by `at`.

    `job` is null for a job of another tenant.
    """

    job: JobReference | None
    node: str
    at: str
    workers: int
    keeps: list[str]


class PlanWindow(Row, frozen=True, kw_only=True):
    """An advance reservation of a quota. Both names are null for a quota that applies to other tenants alone."""

    quota: str | None
    name: str | None
    start: str
    end: str
    gpus: int
    pool: str | None


class PlanDrain(Row, frozen=True, kw_only=True):
    """A node, or one device of it, that takes no new work.

    `restarts` says whether its jobs restart elsewhere once there is room.
    """

    node: str
    index: int | None
    why: str
    restarts: bool


class PlanPage(Row, frozen=True, kw_only=True):
    """A page of the plan, by start. All that is kept, reserved or drained is on the first page alone."""

    items: list[PlanRow]
    kept: list[KeptRoom]
    windows: list[PlanWindow]
    drains: list[PlanDrain]
    next: str | None
