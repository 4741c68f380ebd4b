"""Events of the node's programs: what is posted, what is not said twice, and that nothing is raised."""

import asyncio
from typing import Any

import pytest

from dovetail.kube.errors import Unreachable
from dovetail_agent.feature.events import AGAIN, Teller
from tests.agent.builders import make_node, make_tenant


class Posted:
    """A client that keeps what it is to create."""

    def __init__(self, error: Exception | None = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.namespaces: list[str] = []
        self._error = error

    async def create(self, _resource: Any, body: dict[str, Any], *, namespace: str, **_: Any) -> None:
        if self._error:
            raise self._error
        self.bodies.append(body)
        self.namespaces.append(namespace)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def teller(posted: Posted, clock: Clock) -> Teller:
    return Teller(posted, component="dovetail-agent", clock=clock)  # type: ignore[arg-type]  # as far as it is used


def test_an_event_of_a_pod_names_it_and_says_who_says_so(clock: Clock) -> None:
    posted = Posted()
    asyncio.run(teller(posted, clock).pod(make_tenant(uid="u1"), reason="Lost", message="m"))
    (body,) = posted.bodies
    assert (body["involvedObject"]["kind"], body["involvedObject"]["uid"]) == ("Pod", "u1")
    assert (body["type"], body["reason"], body["message"]) == ("Warning", "Lost", "m")
    assert body["source"] == {"component": "dovetail-agent", "host": "v100-0"}


def test_an_event_of_a_node_is_where_kubectl_looks_for_it(clock: Clock) -> None:
    posted = Posted()
    asyncio.run(teller(posted, clock).node(make_node(), reason="R", message="m", severity="Normal"))
    assert posted.namespaces == ["default"]
    assert posted.bodies[0]["involvedObject"]["uid"] == "v100-0"


def test_what_was_said_is_not_said_again_for_a_while(clock: Clock) -> None:
    posted = Posted()
    told = teller(posted, clock)

    async def say(message: str) -> None:
        await told.pod(make_tenant(), reason="R", message=message)

    asyncio.run(say("m"))
    asyncio.run(say("m"))
    asyncio.run(say("another"))
    assert len(posted.bodies) == 2
    clock.now += AGAIN
    asyncio.run(say("m"))
    assert len(posted.bodies) == 3


def test_a_long_sentence_is_cut_to_what_the_api_server_takes(clock: Clock) -> None:
    posted = Posted()
    asyncio.run(teller(posted, clock).pod(make_tenant(), reason="R", message="x" * 5000))
    assert len(posted.bodies[0]["message"]) == 1024


def test_an_event_that_cannot_be_posted_is_nobody_s_trouble(clock: Clock) -> None:
    nobody = Posted(Unreachable("https://api", problem="gone"))
    asyncio.run(teller(nobody, clock).node(make_node(), reason="R", message="m"))
