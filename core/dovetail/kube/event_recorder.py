"""Events as they are sent: what people are told of an object, as `kubectl describe` shows it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from dovetail.api.builtin import Severity

# What the API server takes.
_LONGEST_MESSAGE: Final = 1024
_LONGEST_PREFIX: Final = 50
# Where events about objects without a namespace are looked for.
_NO_NAMESPACE: Final = "default"


def namespace_of(about: Mapping[str, str]) -> str:
    """The namespace that an event about this object belongs to."""
    return about.get("namespace", _NO_NAMESPACE)


def event(
    about: Mapping[str, str],
    *,
    component: str,
    instance: str,
    severity: Severity,
    reason: str,
    message: str,
    at: datetime,
    host: str = "",
) -> dict[str, Any]:
    """An Event to create, about the object that `about` refers to (apiVersion, kind, name, namespace, uid).

    `at` is when it happened, `instance` which of the `component`s says so; a message that is too long is cut.
    """
    # The old times are those that `kubectl describe` shows; they are of whole seconds, and say no order within one.
    when = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"generateName": f"{about['name'][:_LONGEST_PREFIX]}.", "namespace": namespace_of(about)},
        "involvedObject": dict(about),
        "type": severity,
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
        "source": {"component": component, **({"host": host} if host else {})},
        "reportingComponent": component,
        "reportingInstance": instance,
        "action": reason,
        "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
