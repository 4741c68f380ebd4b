"""What keeps the workers of a guest apart: ports of the node, and the labels that their own rules select. Pure.

The queue plans workers of one kind. What only some templates of a guest say therefore stays out.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.jobs.guests.kind import PodSet


def selected_labels(seated: Sequence[PodSet], *, given: Mapping[str, str]) -> dict[str, str]:
    """The labels that all workers have, and that their anti-affinity or spread constraints name.

    `given` are labels that the guest's controller gives the pods. No other label says where a pod may go.
    """
    spec = seated[0].template.spec
    affinity = spec.get("affinity")
    rules = affinity.get("podAntiAffinity") if isinstance(affinity, Mapping) else None
    named = _words(rules, spec.get("topologySpreadConstraints"))
    shared = set.intersection(*(set({**each.template.labels, **given}.items()) for each in seated))
    return {key: value for key, value in sorted(shared) if key in named}


def node_ports(seated: Sequence[PodSet]) -> list[int]:
    """The ports of its node that each worker takes."""
    return sorted(set.intersection(*(set(_ports(each.template.spec)) for each in seated)))


def _ports(spec: Mapping[str, Any]) -> Iterator[int]:
    # With the node's network every port is a port of the node.
    field = "containerPort" if spec.get("hostNetwork") is True else "hostPort"
    for key in ("containers", "initContainers"):
        found = spec.get(key)
        for container in found if isinstance(found, list) else ():
            if not isinstance(container, Mapping):
                continue
            is_sidecar = container.get("restartPolicy") == "Always"
            ports = container.get("ports") if key == "containers" or is_sidecar else None
            for port in ports if isinstance(ports, list) else ():
                number = port.get(field) if isinstance(port, Mapping) else None
                if isinstance(number, int) and number > 0:
                    yield number


def _words(*values: Any) -> set[str]:
    """All texts in these values."""
    found: set[str] = set()
    left = list(values)
    # Without recursion: a guest's spec may be nested deeply.
    while left:
        value = left.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            left += value
    return found
