"""The events of a job: reads them, and prints them as a section of `gjob show`."""

from collections.abc import Sequence

from dovetail.api.builtin import Event
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import EVENTS
from dovetail.kube.errors import Forbidden
from dovetail.query.jobs.events import JobEvent
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui import output


async def events_of(cluster: Cluster, *, job: GPUJob) -> list[Event] | None:
    """The events of this very object that still exist; None if the user may not list events."""
    about = f"involvedObject.uid={job.metadata.uid}"
    try:
        found = await cluster.client.list(EVENTS, as_type=Event, namespace=job.metadata.namespace, field_selector=about)
    except Forbidden:
        return None
    return found.items


def section(events: Sequence[JobEvent] | None) -> str:
    """Events as a section of text; empty without any."""
    if events is None:
        lines = ["  not shown: that takes the right to list events"]
    else:
        lines = [f"  {each.time}  {each.reason}: {each.message}{_times(each)}" for each in events]
    return "\n".join([output.bold("Events"), *lines]) if lines else ""


def _times(event: JobEvent) -> str:
    return f" (×{event.count})" if event.count > 1 else ""
