"""The Kubernetes Events of a job, for lists. Pure."""

from collections.abc import Iterable

import msgspec

from dovetail.api.builtin import Event


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event.

    time     when it last happened (RFC 3339); empty if its writer states no time
    type     Normal or Warning
    reason   one word
    message  a sentence
    count    how many times it has happened
    """

    time: str
    type: str
    reason: str
    message: str
    count: int


def job_events(events: Iterable[Event]) -> list[JobEvent]:
    """The events, oldest first."""
    return [_row(each) for each in sorted(events, key=lambda each: (_time(each), each.metadata.resource_version))]


def _row(event: Event) -> JobEvent:
    return JobEvent(
        time=_time(event), type=event.type, reason=event.reason, message=event.message, count=event.count or 1
    )


def _time(event: Event) -> str:
    said = event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp
    # Some writers add microseconds.
    return f"{said[:19]}Z" if said else ""
