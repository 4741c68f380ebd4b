"""Waste: what jobs should request, from what they used; and what is wrong with nodes. Pure."""

from collections.abc import Iterable, Iterator
from typing import Literal

from dovetail.answers import Row
from dovetail.answers.owners import project_of, user_of
from dovetail.api.gpujob import GPUJob, Phase
from dovetail.jobs.memory_use import name_of_runs
from dovetail.jobs.right_sizes import right_size


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


def right_sizes(jobs: Iterable[GPUJob]) -> Iterator[RightSizeRow]:
    """The right size of each user's runs of one name, from the latest one that has measurements."""
    latest: dict[tuple[str, str, str], GPUJob] = {}
    for job in jobs:
        if not (job.status.memory or job.status.measured):
            continue
        key = (*name_of_runs(job), user_of(job) or "")
        if key not in latest or latest[key].metadata.creation_timestamp < job.metadata.creation_timestamp:
            latest[key] = job
    for job in latest.values():
        if (found := right_size(job)) is not None:
            yield RightSizeRow(
                namespace=job.metadata.namespace,
                name=name_of_runs(job)[1],
                job=job.metadata.name,
                number=job.status.number,
                user=user_of(job) or "",
                project=project_of(job),
                phase=job.status.phase or "Queued",
                request=found.request,
                suggested=found.suggested,
                saved_gpus=found.saved_gpus,
                promised_mib=found.promised_mib,
                peak_mib=found.peak_mib,
                mean_utilization=found.mean_utilization,
                device_seconds=found.device_seconds,
                runs=found.runs,
                basis=found.basis,
            )
