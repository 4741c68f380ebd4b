"""Whether the scheduler runs, as its Lease or its Deployment shows. Pure."""

from datetime import datetime
from typing import Final

from dovetail.api.builtin import Deployment, Lease
from dovetail.formats.durations import human
from dovetail.formats.timestamps import moment

RUNNING: Final = "Running"


def judge_lease(lease: Lease, *, now: datetime) -> str:
    """`Running` if a holder has renewed the Lease within its time, else `Not running` and the reason."""
    spec = lease.spec
    if not spec.holder_identity or not spec.renew_time:
        return "Not running (its Lease has no holder)"
    age_seconds = (now - moment(spec.renew_time)).total_seconds()
    if age_seconds <= (spec.lease_duration_seconds or 0):
        return RUNNING
    return f"Not running (last seen {human(age_seconds)} ago)"


def judge_deployment(deployment: Deployment) -> str:
    """`Running` if a replica is available, else `Not running` and the reason."""
    return RUNNING if deployment.status.available_replicas > 0 else "Not running (no replica is available)"
