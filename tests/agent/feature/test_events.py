"""Events of the node's programs: what they are about, and that they are sent."""

import asyncio

from msgspec.structs import replace as with_fields

from dovetail.kube.client import Client
from dovetail.kube.event_recorder import EventRecorder
from dovetail_agent.feature.events import LIMITS, Events, warn_node, warn_pod
from tests.agent.builders import make_node, make_tenant
from tests.agent.recorded import Recorded, RecordedEvent
from tests.background import running
from tests.core.kube.api import Answer, Api


def test_a_warning_about_a_pod_names_it_and_the_node_that_reports_it() -> None:
    recorded = Recorded()
    warn_pod(recorded, tenant=with_fields(make_tenant(uid="u1"), name="a"), node="v100-0", reason="Lost", message="m")
    assert recorded.events == [RecordedEvent(kind="Pod", name="a", uid="u1", reason="Lost", message="m", host="v100-0")]


def test_kubectl_finds_a_warning_about_a_node_by_the_name_in_place_of_its_uid() -> None:
    recorded = Recorded()
    warn_node(recorded, node=make_node(), reason="R", message="m")
    assert recorded.events == [
        RecordedEvent(kind="Node", name="v100-0", uid="v100-0", reason="R", message="m", host="v100-0")
    ]


async def test_the_feature_sends_an_event_that_each_look_records_once(api: Api, client: Client) -> None:
    api.answer(post := "POST /api/v1/namespaces/default/events", Answer(body={}))
    recorder = EventRecorder(client, component="dovetail-agent", limits=LIMITS)
    for _ in range(3):
        warn_node(recorder, node=make_node(), reason="R", message="m")
    async with running(Events(recorder).run(lambda: None)), asyncio.timeout(20):
        while not api.of(post):  # noqa: ASYNC110 - a request arrives over HTTP
            await asyncio.sleep(0.001)
    assert api.of(post)[0].body["source"] == {"component": "dovetail-agent", "host": "v100-0"}
