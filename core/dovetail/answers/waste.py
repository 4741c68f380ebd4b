"""Waste: what jobs should request, from what they used; and what is wrong with nodes. Types only."""

from typing import Literal

from dovetail.answers import Page, Row
from dovetail.api.gpujob import Phase


class RightSizeRow(Row, frozen=True, kw_only=True):
    """The right size of the runs of one name, from the latest one, `job`, and the earlier ones that it knows of.

    - `request`: the request of each worker
    - `suggested`: a smaller request that the measurements justify; empty for none
    - `savedGpus`: GPUs that it saves over all workers
    - `promisedMiB`: memory promised on each device
    - `peakMiB`: the highest measured use of a device by a worker over these runs; 0 without any
    - `meanUtilization`: that of the devices of the latest run, from 0 to 1; null without any
    - `deviceSeconds`: how long that was measured, in seconds, summed over devices
    - `runs`: the number of runs that the peak is of
    - `basis`: what the answer rests on, in one sentence
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


class RightSizePage(Page[RightSizeRow], frozen=True, kw_only=True):
    """A page of right sizes, those that save the most GPUs first."""


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
