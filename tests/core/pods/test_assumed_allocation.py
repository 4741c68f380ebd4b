import json
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Container, Pod, PodSpec
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import PODS
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail.pods.assumed_allocation import assumed_pod
from tests.core import hostile

DEVICE = {"uuid": "a-0", "index": 0, "shareMilli": 500, "memoryMiB": 1024}
ALLOCATION = {"node": "a", "mode": "Fractional", "containers": [{"index": 0, "devices": [DEVICE]}], "version": 1}
META = ObjectMeta(name="p", namespace="ns", uid="u", annotations={names.ALLOCATION: json.dumps(ALLOCATION)})


def test_a_pod_that_was_never_read_is_where_its_allocation_says() -> None:
    assert assumed_pod(META, None) == Pod(metadata=META, spec=PodSpec(node_name="a"))


def test_what_was_read_of_a_pod_before_stays() -> None:
    known = Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=[Container(name="main")]))
    assumed = assumed_pod(META, known)
    assert assumed is not None
    assert (assumed.spec.containers, assumed.spec.node_name, assumed.metadata) == (known.spec.containers, "a", META)


@pytest.mark.parametrize("annotations", [{}, {names.ALLOCATION: hostile.nested(1_100)}, {names.ALLOCATION: "x"}])
def test_nothing_is_assumed_of_a_pod_that_was_promised_no_device(annotations: dict[str, str]) -> None:
    assert assumed_pod(msgspec.structs.replace(META, annotations=annotations), None) is None


async def test_it_counts_from_the_first_list_on_until_it_is_deleted() -> None:
    changes: list[tuple[EventType, str]] = []
    reflector = Reflector(
        Client(Connection(server="http://127.0.0.1:1")),
        resource=PODS,
        as_type=Pod,
        on_event=lambda event, pod: changes.append((event, pod.spec.node_name)),
        stand_in=assumed_pod,
    )
    meta: dict[str, Any] = msgspec.to_builtins(META)
    for phase in (1, 2):
        hostile.feed(reflector, hostile.text_of({"metadata": dict(meta), "status": {"phase": phase}}))
    assert reflector.unreadable.keys() == {"ns/p"}
    hostile.feed(reflector, hostile.text_of({"metadata": dict(meta), "status": {"phase": 3}}), event="DELETED")
    assert changes == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert not reflector.unreadable
