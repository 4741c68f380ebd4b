"""The events of a job: reads them, and prints them, alone or as a section of `gjob show`."""

from collections.abc import Sequence

import msgspec

from dovetail.answers.jobs import EventList, EventRow, event_rows
from dovetail.api.builtin import Event
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import EVENTS
from dovetail.kube.errors import Forbidden
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui import output

_FIELDS = ("AT", "TYPE", "REASON", "COUNT", "MESSAGE")


async def events_of(cluster: Cluster, *, job: GPUJob) -> list[EventRow]:
    """The events of this very object that still exist, the oldest first. Raises `Forbidden`."""
    about = f"involvedObject.uid={job.metadata.uid}"
    found = await cluster.client.list(EVENTS, as_type=Event, namespace=job.metadata.namespace, field_selector=about)
    return event_rows(found.items)


async def events_or_none(cluster: Cluster, *, job: GPUJob) -> list[EventRow] | None:
    """The same; None if the user may not list events."""
    try:
        return await events_of(cluster, job=job)
    except Forbidden:
        return None


def shown(events: Sequence[EventRow], *, form: str) -> str:
    """The events as a table or for programs."""
    if form != "table":
        return output.document(msgspec.to_builtins(EventList(items=list(events))), form=form)
    rows = [
        dict(zip(_FIELDS, (each.at, each.type, each.reason, each.count, each.message), strict=True)) for each in events
    ]
    return output.render(rows, columns=_FIELDS, form=form)


def section(events: Sequence[EventRow] | None) -> str:
    """Events as a section of text; empty without any."""
    if events is None:
        lines = ["  not shown: that takes the right to list events"]
    else:
        lines = [f"  {each.at or ''}  {each.reason}: {each.message}{_times(each)}" for each in events]
    return "\n".join([output.bold("Events"), *lines]) if lines else ""


def _times(event: EventRow) -> str:
    return f" (×{event.count})" if event.count > 1 else ""
