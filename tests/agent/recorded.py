"""A recorder of events that keeps what features record, and sends nothing."""

from dataclasses import dataclass

from dovetail.api.builtin import ObjectReference, Severity
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.event_recorder import EventRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """One event. `kind` and `name` say what it is about."""

    kind: str
    name: str
    uid: str
    reason: str
    message: str
    host: str


class Recorded(EventRecorder):
    """Its events in order."""

    def __init__(self) -> None:
        super().__init__(Client(Connection(server="http://127.0.0.1:1")), component="dovetail-agent")
        self.events: list[RecordedEvent] = []

    def event(self, about: ObjectReference, *, severity: Severity, reason: str, message: str, host: str = "") -> None:
        assert severity == "Warning"
        self.events.append(
            RecordedEvent(kind=about.kind, name=about.name, uid=about.uid, reason=reason, message=message, host=host)
        )

    def about(self, kind: str) -> list[tuple[str, str]]:
        """The names and reasons of the events about objects of a kind."""
        return [(each.name, each.reason) for each in self.events if each.kind == kind]
