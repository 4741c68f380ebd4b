"""The cluster at one time: its devices, and how many jobs run and wait. Pure."""

from collections.abc import Iterable
from datetime import datetime

from dovetail.answers import Row
from dovetail.answers.inventory import Inventory
from dovetail.answers.node_rows import inventory_row
from dovetail.answers.nodes import InventoryRow
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import timestamp
from dovetail.query.jobs.states import short_state


class JobCounts(Row, frozen=True, kw_only=True):
    """The jobs that run, and the jobs that wait in the queue or start."""

    running: int
    waiting: int


class Overview(InventoryRow, frozen=True, kw_only=True):
    """The cluster at one time.

    time          when it was read (RFC 3339)
    jobs_running  the number of jobs that run
    jobs_waiting  the number of jobs that wait in the queue, or start
    """

    time: str
    jobs_running: int
    jobs_waiting: int


def job_counts(jobs: Iterable[GPUJob]) -> JobCounts:
    """How many of the jobs run and wait."""
    states = [short_state(job) for job in jobs]
    return JobCounts(running=states.count("R"), waiting=states.count("PD"))


def overview(found: Inventory, *, jobs: Iterable[GPUJob], now: datetime) -> Overview:
    """The cluster's sums, jobs and nodes."""
    devices, counts = inventory_row(found), job_counts(jobs)
    return Overview(
        **{name: getattr(devices, name) for name in devices.__struct_fields__},
        time=timestamp(now),
        jobs_running=counts.running,
        jobs_waiting=counts.waiting,
    )
