"""What has happened to a job: its events, the oldest first."""

from collections.abc import Sequence
from typing import Any

from dovetail.api.builtin import Event
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import EVENTS
from dovetail.kube.errors import Forbidden
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui import output


async def events_of(cluster: Cluster, job: GPUJob) -> list[Event] | None:
    """The events that are still kept about the very object; None where the user may not list events."""
    about = f"involvedObject.uid={job.metadata.uid}"
    try:
        found = await cluster.client.list(EVENTS, as_type=Event, namespace=job.metadata.namespace, field_selector=about)
    except Forbidden:
        return None
    return sorted(found.items, key=lambda each: (_time(each), each.metadata.resource_version))


def records(events: Sequence[Event] | None) -> list[dict[str, Any]] | None:
    """Events for programs; None where they may not be seen."""
    return None if events is None else [_record(each) for each in events]


def section(events: Sequence[Event] | None) -> str:
    """Events as a section of text; empty where there are none."""
    if events is None:
        lines = ["  not shown: that takes the right to list events"]
    else:
        lines = [f"  {_time(each)}  {each.reason}: {each.message}{_times(each)}" for each in events]
    return "\n".join([output.bold("Events"), *lines]) if lines else ""


def _record(event: Event) -> dict[str, Any]:
    return {
        "time": _time(event),
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "count": event.count or 1,
    }


def _time(event: Event) -> str:
    said = event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp
    # Some writers count microseconds.
    return f"{said[:19]}Z" if said else ""


def _times(event: Event) -> str:
    return f" (×{event.count})" if (event.count or 1) > 1 else ""
