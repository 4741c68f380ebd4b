"""Kubernetes Events as they are sent, for `kubectl describe` to show."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from dovetail.api.builtin import Severity

# The API server's limits.
_LONGEST_MESSAGE: Final = 1024
_LONGEST_PREFIX: Final = 50
# Where kubectl looks for events about cluster-scoped objects.
_NO_NAMESPACE: Final = "default"


def namespace_of(about: Mapping[str, str]) -> str:
    """The namespace in which an event about this object is created."""
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
    """An Event to create about an object.

    `about` is its reference: apiVersion, kind, name, namespace, uid.

    `at` is when it happened; `instance` is the replica of `component` that reports it. A message over 1,024 characters
    is cut.
    """
    # `kubectl describe` shows the legacy timestamps. They have whole seconds and give no order within one second.
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
