"""Waste: what jobs should request, from what they used; and what is wrong with nodes. Types only."""

from typing import Literal

from dovetail.answers import Row
from dovetail.api.gpujob import Phase


class RightSizeRow(Row, frozen=True, kw_only=True):
    """The right size of the runs of one name, from the latest one, `job`, and the earlier ones that it knows of.

    `suggested` is empty where the measurements justify no smaller request; `basis` says what was measured.
    """

    namespace: str
    name: str
    job: str
    number: int | None
    user: str
    project: str
    phase: Phase
    request: str
    suggested: str
    saved_gpus: float
    promised_mib: int
    peak_mib: int
    mean_utilization: float | None
    device_seconds: float
    runs: int
    basis: str


class RightSizePage(Row, frozen=True, kw_only=True):
    """A page of right sizes, those that save the most GPUs first."""

    items: list[RightSizeRow]
    next: str | None
    total: int


class NodeFinding(Row, frozen=True, kw_only=True):
    """What `dovetail doctor` finds on nodes: one finding for all nodes with the same problem.

    `nodes` names the first of them, `count` counts them all.
    """

    level: Literal["warning", "error"]
    message: str
    nodes: list[str]
    count: int
    fix: str


class NodeFindings(Row, frozen=True, kw_only=True):
    """What is wrong with nodes, errors first. `asOf` is when it was computed."""

    items: list[NodeFinding]
    total: int
    as_of: str
