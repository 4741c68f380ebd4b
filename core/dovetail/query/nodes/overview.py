"""The cluster at one time: its devices, and how many jobs run and wait. Pure."""

from collections.abc import Iterable
from datetime import datetime

from dovetail.answers import Row
from dovetail.answers.inventory import Inventory
from dovetail.answers.node_rows import node_row, totals
from dovetail.answers.nodes import Overview
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import timestamp
from dovetail.query.jobs.states import short_state


class JobCounts(Row, frozen=True, kw_only=True):
    """The jobs that run, and the jobs that wait in the queue or start."""

    running: int
    waiting: int


def job_counts(jobs: Iterable[GPUJob]) -> JobCounts:
    """How many of the jobs run and wait."""
    states = [short_state(job) for job in jobs]
    return JobCounts(running=states.count("R"), waiting=states.count("PD"))


def overview(found: Inventory, *, jobs: Iterable[GPUJob], now: datetime, reader: Reader = EVERYTHING) -> Overview:
    """The cluster's sums, jobs and nodes. Tenants that the reader may not see are sums."""
    sums, counts = totals(found.devices), job_counts(jobs)
    return Overview(
        **{name: getattr(sums, name) for name in sums.__struct_fields__},
        time=timestamp(now),
        jobs_running=counts.running,
        jobs_waiting=counts.waiting,
        nodes=[node_row(node, sees=reader.sees) for node in found.nodes.values()],
    )
