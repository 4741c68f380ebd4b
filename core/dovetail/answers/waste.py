"""Waste: what jobs should request, from what they used; and what is wrong with nodes. Types only."""

from typing import Literal

from dovetail.answers import Page, Row
from dovetail.api.gpujob import Phase


class RightSizeRow(Row, frozen=True, kw_only=True):
    """The right size of the runs of one name, from the latest one, `job`, and the earlier ones that it knows of.

    - `request`: the request of each worker
    - `suggested`: a smaller request that the measurements justify; empty for none
    - `accepted`: what the owner has accepted as enough of each device, `spec.rightSize`; empty for nothing
    - `savedGpus`: GPUs that `suggested` saves over all workers
    - `savableHours`: GPU hours that it would have saved in the latest run, until now or its end
    - `savedHours`: GPU hours that the accepted size has saved in it
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
    accepted: str
    saved_gpus: float
    savable_hours: float
    saved_hours: float
    promised_mib: int
    peak_mib: int
    mean_utilization: float | None
    device_seconds: float
    runs: int
    basis: str


class TeamSavings(Row, frozen=True, kw_only=True):
    """What right sizes save in a project of a namespace, over the latest runs of its jobs that were measured.

    `jobs` of these could request less, `savedGpus` together. `project` is empty for jobs of none.
    """

    namespace: str
    project: str
    jobs: int
    saved_gpus: float
    savable_hours: float
    saved_hours: float


class RightSizePage(Page[RightSizeRow], frozen=True, kw_only=True):
    """A page of right sizes, those that save the most GPUs first; `teams` has the savings of all rows and jobs."""

    teams: list[TeamSavings]


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
