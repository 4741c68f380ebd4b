"""The commands' way to the gateway: a real one, and what each failure is called."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from dovetail.answers.questions import DryRun
from dovetail.answers.submission import BLIND, with_text
from dovetail.decoding import decode
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, Status
from dovetail.sdk.calls import v3
from dovetail.sdk.calls.call import Call
from dovetail_cli.cluster import gateway
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.explain import render
from dovetail_cli.ui.errors import CommandError, MissingError, NoConnectionError, UsageError
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.conftest import api, face  # noqa: F401 - fixtures
from tests.gateway.served import Face

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EIGHT = {"gpu": 8, "workers": 2, "template": {"spec": {"containers": [{"name": "m"}]}}}


@asynccontextmanager
async def cluster_of(api: GatewayApiServer, *, token: str = "red-token") -> AsyncIterator[Cluster]:  # noqa: F811
    async with Client(replace(api.connection, token=token), user_agent="test") as client:
        yield Cluster(client=client, namespace="red")


async def test_an_explanation_names_no_other_tenant(api: GatewayApiServer, face: Face) -> None:  # noqa: F811
    for at in range(2, 8):
        pod = make_bound_pod(f"canarypod-{at}", namespace="canaryns", job="canaryjob", number=7, device=f"a-{at}")
        api.put("pods", pod)
    status = {"phase": "Queued", "number": 9, "reason": "Resources", "message": "Need 8 GPUs"}
    api.put("gpujobs", make_job("two", namespace="red", number=9, user="rita", status=status, gpu=8, workers=2))
    async with cluster_of(api) as cluster:
        text = ""
        for _ in range(1000):
            try:
                found = await gateway.ask(cluster, url=face.url, call=v3.explain("red", name="two"))
            except MissingError:
                continue
            text = render.text(found, most=None)
            if "another tenant" in text:
                break
    assert ("another tenant" in text, "canary" in text) == (True, False)


async def test_a_dry_run_says_where_it_would_start(api: GatewayApiServer, face: Face) -> None:  # noqa: F811
    async with cluster_of(api) as cluster:
        found = await gateway.ask(cluster, url=face.url, call=v3.dry_run("red", spec={**EIGHT, "workers": 1}))
    assert with_text(found, namespace="red", now=NOW).text == "It would start now on b (8 GPUs)."


async def test_a_job_that_is_hidden_does_not_exist(api: GatewayApiServer, face: Face) -> None:  # noqa: F811
    async with cluster_of(api) as cluster:
        with pytest.raises(MissingError, match="there is no GPUJob canaryjob"):
            await gateway.ask(cluster, url=face.url, call=v3.explain("canaryns", name="canaryjob"))


async def test_a_namespace_that_may_not_be_listed_is_refused(api: GatewayApiServer, face: Face) -> None:  # noqa: F811
    async with cluster_of(api) as cluster:
        with pytest.raises(CommandError, match="the gateway refuses: you may not list"):
            await gateway.ask(cluster, url=face.url, call=v3.dry_run("canaryns", spec=EIGHT))


async def test_a_token_that_is_not_accepted_is_no_connection(api: GatewayApiServer, face: Face) -> None:  # noqa: F811
    async with cluster_of(api, token="unknown") as cluster:
        with pytest.raises(NoConnectionError, match="does not accept your token"):
            await gateway.ask(cluster, url=face.url, call=v3.explain("red", name="train"))


async def test_a_kubeconfig_without_a_token_says_so(
    api: GatewayApiServer,  # noqa: F811
    face: Face,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DOVETAIL_TOKEN", raising=False)
    async with Client(api.connection, user_agent="test") as client:
        cluster = Cluster(client=client, namespace="red")
        with pytest.raises(NoConnectionError, match="this kubeconfig has none"):
            await gateway.ask(cluster, url=face.url, call=v3.explain("red", name="train"))


async def test_a_gateway_that_is_away_is_no_connection(api: GatewayApiServer) -> None:  # noqa: F811
    async with cluster_of(api) as cluster:
        with pytest.raises(NoConnectionError, match=r"the gateway at http://127\.0\.0\.1:1 does not answer"):
            await gateway.ask(cluster, url="http://127.0.0.1:1", call=v3.explain("red", name="train"))
        with pytest.raises(UsageError, match="is no URL of a gateway"):
            await gateway.ask(cluster, url="gpu.example.org", call=v3.explain("red", name="train"))


def test_the_option_comes_before_the_environment_and_this_before_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gateway.VARIABLE, "http://env")
    assert gateway.address("http://option", profile="http://profile") == "http://option"
    assert gateway.address(None, profile="http://profile") == "http://env"
    monkeypatch.delenv(gateway.VARIABLE)
    assert gateway.address(None, profile="http://profile") == "http://profile"
    assert gateway.address(None, profile=None) is None


async def test_without_a_gateway_the_refusal_says_how_to_name_one(api: GatewayApiServer) -> None:  # noqa: F811
    async def refused() -> str:
        raise Forbidden(Status(code=403, reason="Forbidden", message="you may not list pods"))

    async def unasked() -> Call[str]:
        pytest.fail("no gateway is asked")

    async def none() -> str | None:
        return None

    said = "^not allowed: you may not list pods; the gateway can answer: name its URL"
    async with cluster_of(api) as cluster:
        with pytest.raises(gateway.UnansweredError, match=said):
            await gateway.answered(cluster, here=refused, there=unasked, url=none)


def answer(**fields: object) -> DryRun:
    waits = {"outcome": "Waits", "reason": "Resources", "message": "Need 8 GPUs, only 6 available", "position": 3}
    start = {"seconds": 3600.0, "earliest": None, "latest": None, "basis": "another tenant ends"}
    rest = {"details": [], "nodes": None, "start": start, "preemption": None, "cpuInSeconds": None}
    values = {**waits, **rest, "array": False, "limitsCounted": True, "text": ""}
    return decode(msgspec.json.encode({**values, **fields}), as_type=DryRun)


def preemption(*, victims: list[dict[str, object]], others: int) -> dict[str, object]:
    times = {"inSeconds": 0.0, "graceSeconds": 60.0, "startsInSeconds": 90.0}
    return {**times, "victims": victims, "otherVictims": others}


MINE = {"namespace": "red", "name": "train", "number": 4, "priority": 5}
WHY = "Resources: Need 8 GPUs, only 6 available."
WAITS = f"It would wait at place 3. {WHY}"
BOTH = "train (priority 5) and 2 jobs of other tenants"
AT = "it would start in about 90 s, at 2026-01-01T12:01:30Z."


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, f"{WAITS} It would start in about 1h00m, at 2026-01-01T13:00:00Z: another tenant ends."),
        ({"start": None}, f"{WAITS} No end that is known makes room for it."),
        (
            {"start": {"seconds": 600.0, "earliest": 0.4, "latest": 832.0, "basis": ""}},
            f"{WAITS} It would start in about 10m00s (now to 13m52s), at 2026-01-01T12:10:00Z.",
        ),
        (
            {"start": {"seconds": 600.0, "earliest": 60.0, "latest": 832.0, "basis": ""}},
            f"{WAITS} It would start in about 10m00s (60 s to 13m52s), at 2026-01-01T12:10:00Z.",
        ),
        (
            {"start": None, "preemption": preemption(victims=[], others=1)},
            f"{WAITS} 1 job of other tenants would be preempted for it, with a warning 60 s before: {AT}",
        ),
        (
            {"start": None, "preemption": preemption(victims=[MINE], others=2)},
            f"{WAITS} {BOTH} would be preempted for it, each with a warning 60 s before: {AT}",
        ),
        ({"limitsCounted": False, "outcome": "Never"}, f"It could never start here. {WHY} {BLIND}"),
        ({"outcome": "Never"}, f"It could never start here. {WHY}"),
        (
            {"outcome": "NotBefore", "message": "2026-02-01T00:00:00Z"},
            "It would not start before 2026-02-01T00:00:00Z.",
        ),
        ({"outcome": "Blocked", "reason": "Dependency", "message": "it waits for a"}, "Dependency: it waits for a."),
    ],
)
def test_each_outcome_is_one_that_a_person_can_use(fields: dict[str, object], sentence: str) -> None:
    assert with_text(answer(**fields), namespace="red", now=NOW).text == sentence


def test_a_victim_of_another_namespace_has_its_namespace() -> None:
    found = answer(start=None, preemption=preemption(victims=[MINE], others=0))
    assert " red/train (priority 5) would be preempted" in with_text(found, namespace="blue", now=NOW).text


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, 3600.0),
        ({"start": None}, None),
        ({"start": None, "preemption": preemption(victims=[], others=1)}, 90.0),
        ({"preemption": preemption(victims=[], others=1)}, 90.0),
        ({"outcome": "Starts", "start": None}, 0.0),
    ],
)
def test_the_sooner_of_both_ways_is_when_it_starts(fields: dict[str, object], seconds: float | None) -> None:
    assert answer(**fields).starts_in_seconds == seconds
