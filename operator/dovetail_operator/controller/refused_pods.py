"""The informer of events that say that the Job controller cannot create a pod."""

from collections.abc import Callable

from dovetail.api.builtin import Event
from dovetail.api.meta import EventType
from dovetail.api.resources import EVENTS
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail_operator.state.refused_pods import FAILED_CREATE


def refusals(client: Client, *, on_event: Callable[[EventType, Event], None]) -> Reflector[Event]:
    """Build the informer of the events that a batch Job's pods cannot be created."""
    # One watch for all jobs: for a query per job the API server scans all events each time.
    chosen = f"reason={FAILED_CREATE},involvedObject.kind=Job"
    return Reflector(client, EVENTS, Event, on_event=on_event, field_selector=chosen)
