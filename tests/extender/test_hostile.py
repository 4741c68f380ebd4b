"""Whatever a user stores, the extender's handlers take it, and promise what others have all the same."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail import names
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail_extender.protocol import WireError, read_filter_args
from dovetail_extender.service import Extender, Options
from tests.core import hostile
from tests.extender.builders import make_gpunode, make_node, make_pod

# Draws of up to 1.5 MiB are what this is about.
HOSTILE = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def make_extender() -> Extender:
    client = Client(Connection(server="http://127.0.0.1:1"))
    office = Leadership(client, namespace="dovetail-system", name=names.EXTENDER_LEASE, identity="one")
    extender = Extender(client, options=Options(), leadership=office)
    watching = extender.watching
    hostile.feed(watching._nodes, hostile.text_of(make_node()))
    hostile.feed(watching._gpunodes, hostile.text_of(make_gpunode()))
    return extender


def bound(name: str) -> dict[str, Any]:
    device = {"uuid": "a-0", "index": 0, "shareMilli": 1000, "memoryMiB": 32768}
    allocation = {"node": "a", "mode": "Exclusive", "containers": [{"index": 0, "devices": [device]}], "version": 1}
    pod = make_pod(name, nodeName="a")
    pod["metadata"]["annotations"]["dovetail.dev/allocation"] = json.dumps(allocation)
    return pod


@HOSTILE
@given(pods=st.lists(hostile.pods(), min_size=1, max_size=3), jobs=st.lists(hostile.gpujobs(), max_size=2))
async def test_no_pod_and_no_job_ends_a_handler_or_hides_another_pod(pods: list[bytes], jobs: list[bytes]) -> None:
    extender = make_extender()
    watching = extender.watching
    for text in jobs:
        hostile.feed(watching._jobs, text)
    for text in pods:
        hostile.feed(watching._pods, text)
    hostile.feed(watching._pods, hostile.text_of(bound("healthy")))
    assert extender.ledger.claim("uid-healthy") is not None
    extender.background.let_time_pass()
    extender.metrics.registry.get_sample_value("dovetail_extender_devices")
    list(extender._decisions.count_pods(list(watching.pods())))
    assert hostile.unhandled(watching._pods) + hostile.unhandled(watching._jobs) == []
    assert not watching._pods.unreadable, "of each pod everything that matters can be read"
    for text in pods:
        hostile.feed(watching._pods, text, event="DELETED")
    for text in jobs:
        hostile.feed(watching._jobs, text, event="DELETED")
    assert hostile.unhandled(watching._pods) + hostile.unhandled(watching._jobs) == []


@HOSTILE
@given(gpunode=hostile.gpunodes())
def test_no_report_ends_a_handler(gpunode: bytes) -> None:
    extender = make_extender()
    hostile.feed(extender.watching._gpunodes, gpunode)
    extender.background.let_time_pass()
    assert not extender.watching._gpunodes.unreadable


@HOSTILE
@given(text=hostile.pods())
def test_every_pod_that_can_be_read_has_an_answer_of_the_filter(text: bytes) -> None:
    body = b'{"Pod":' + text + b',"Nodes":null,"NodeNames":["a"]}'
    try:
        args = read_filter_args(body)
    except WireError:
        return
    make_extender()._decisions.filter(args.pod, nodes=args.nodes)
