"""Prometheus as the source of curves: a real one says what the rings say, and one that fails is named in a sentence."""

import argparse
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dovetail.config.errors import ConfigError
from dovetail_gateway.app import Options
from dovetail_gateway.samples.options import add_options, prometheus_of
from dovetail_gateway.samples.prometheus import PrometheusOptions, _Curve, queries, sums
from dovetail_gateway.samples.rings import Grid
from tests.authority import Authority
from tests.background import free_ports
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.samples.prometheus_data import Scrape, holding
from tests.gateway.samples.week import BEGIN, Clock, Sampled, sampling

MIB = 1 << 20
V100_MIB = 32768
STEP = 300
STEPS = 8
DAY = "since=2026-10-31T12:00:00Z"


def load_of(step: int, index: int) -> float:
    return (step % 5 + index % 2) / 10


def scrapes(*, cluster: str = "one") -> list[Scrape]:
    """What the agents of `a` and `b` say every 30 s; the first two devices of `a` are promised."""
    start = BEGIN.timestamp() + 15
    return [
        Scrape(
            at=start + 30 * sample,
            node=node,
            index=index,
            cluster=cluster,
            figures={
                "utilization_ratio": load_of(sample // 10, index),
                "promised_share_ratio": 1.0 if node == "a" and index < 2 else 0.0,
                "memory_used_bytes": 8192 * MIB,
                "memory_total_bytes": V100_MIB * MIB,
                "power_watts": 200 + index,
                "temperature_celsius": 50 + index,
            },
        )
        for node in "ab"
        for index in range(8)
        for sample in range(10 * STEPS)
    ]


async def sampled(it: Sampled) -> None:
    """The gateway's own sampler sees the same."""

    def figures(step: int) -> None:
        for node in "ab" if step % 10 == 0 else "":
            report = it.api.objects["gpunodes"][node]
            for index, device in enumerate(report["status"]["devices"]):
                own = {"utilization": load_of(step // 10, index), "usedMiB": 8192}
                device.update(own | {"powerWatts": 200 + index, "temperatureCelsius": 50 + index})
            it.api.put("gpunodes", report)

    await it.steps(10 * STEPS, before=figures)


@asynccontextmanager
async def asking(api: GatewayApiServer, **options: Any) -> AsyncIterator[Sampled]:
    clock = Clock(now=BEGIN.replace(second=15))
    source = PrometheusOptions(**options)
    async with sampling(api, clock=clock, options=Options(rates=None, prometheus=source)) as it:
        yield it


@pytest.mark.parametrize("of", ["of=Cluster", "of=Model", "of=Model&name=V100", "of=Node&name=a", "of=Device&name=b"])
async def test_a_real_prometheus_and_the_rings_have_the_same_curves(
    api: GatewayApiServer, prometheus: str, of: str
) -> None:
    async with sampling(api, clock=Clock(now=BEGIN.replace(second=15))) as it:
        await sampled(it)
        own = await it.series(f"{of}&{DAY}")
        clock = it.clock
    async with sampling(
        api, clock=clock, options=Options(rates=None, prometheus=PrometheusOptions(url=prometheus))
    ) as it:
        await it.face.until_like(api)
        found = await it.series(f"{of}&{DAY}")
    assert (own["source"], found["source"], found["sourceProblem"]) == ("Dovetail", "Prometheus", "")
    assert (found["stepSeconds"], [each["name"] for each in found["items"]]) == (
        STEP,
        [each["name"] for each in own["items"]],
    )
    begins = own["items"][0]["used"].index(next(each for each in own["items"][0]["used"] if each is not None))
    whole = slice(begins, begins + STEPS)
    for one, other in zip(own["items"], found["items"], strict=True):
        for name in ("gpus", "promised", "used", "utilization", "memory", "powerWatts", "temperatureCelsius"):
            assert other[name][whole] == pytest.approx(one[name][whole], abs=0.02), name
        assert None not in one["used"][whole]


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[str]:
    """One that has scraped the agents of `a` and `b`."""
    async with holding(scrapes(), folder=tmp_path) as url:
        yield url


async def test_of_a_prometheus_of_several_clusters_the_labels_choose_one(api: GatewayApiServer, tmp_path: Path) -> None:
    both = [*scrapes(), *(replace(each, index=each.index + 20) for each in scrapes(cluster="two"))]
    async with holding(both, folder=tmp_path) as url:
        found = dict[str, float]()
        for name, labels in {"all": {}, "one": {"cluster": "one"}, "none": {"cluster": "three"}}.items():
            async with asking(api, url=url, labels=labels) as it:
                it.clock.move(seconds=STEP * STEPS)
                items = (await it.series(f"of=Cluster&{DAY}"))["items"]
                found[name] = max((each or 0 for row in items for each in row["gpus"]), default=0)
    assert found == {"all": 32, "one": 16, "none": 0}


# By what is wrong with it: the answer, and what is said.
FAILURES: dict[str, tuple[Callable[[], web.Response], str]] = {
    "a page of a proxy": (
        lambda: web.Response(status=502, text="<html>"),
        "answers with status 502, and not as a Prometheus does: compare the URL",
    ),
    "a redirect to a login": (
        lambda: web.Response(status=302, headers={"Location": "/login"}),
        "answers with status 302, and not as a Prometheus does: compare the URL",
    ),
    "no right": (lambda: web.Response(status=401), "does not accept a request without a token (status 401)"),
    "a refusal": (
        lambda: web.json_response({"status": "error", "error": "query timed out"}, status=503),
        "refuses the query: query timed out",
    ),
    "a sample that is no number": (
        lambda: web.json_response(
            {
                "status": "success",
                "data": {"result": [{"metric": {"node": "a"}, "values": [[BEGIN.timestamp() - 600, "much"]]}]},
            }
        ),
        "answers with a sample that is no number: could not convert string to float: 'much'",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_one_that_fails_is_named_and_the_gateways_own_samples_are_shown(
    api: GatewayApiServer, failure: str
) -> None:
    answer, said = FAILURES[failure]
    asked = list[str]()

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path)
        return answer()

    async with serving_as_prometheus(serve) as server, asking(api, url=server) as it:
        await it.steps(2)
        for _ in range(3):
            found = await it.series("of=Node&name=a")
            assert found["sourceProblem"] == f"Prometheus at {server} {said}"
        assert found["source"] == "Dovetail"
        assert found["items"][0]["promised"][-2:] == [2, 2]
    assert asked == ["/api/v1/query_range"] * 8, "one that has failed just now is left in peace"


async def test_one_that_is_not_there_is_named(api: GatewayApiServer) -> None:
    (port,) = free_ports(count=1)
    async with asking(api, url=f"http://127.0.0.1:{port}") as it:
        await it.steps(1)
        problem = (await it.series("of=Cluster"))["sourceProblem"]
    assert problem.startswith(f"Prometheus at http://127.0.0.1:{port} does not answer: ")


async def test_it_is_asked_over_tls_with_the_token_of_now(api: GatewayApiServer, tmp_path: Path) -> None:
    tokens = list[str]()

    async def serve(request: web.Request) -> web.Response:
        tokens.append(request.headers.get("Authorization", ""))
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": []}})

    authority = Authority()
    folder = authority.sign("127.0.0.1").write(tmp_path / "pair", authority=authority.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    token = tmp_path / "token"
    token.write_text("first\n")
    async with serving_as_prometheus(serve, tls=context) as server:
        async with asking(api, url=server, ca_file=folder / "ca.crt", token_file=token) as it:
            assert (await it.series("of=Cluster"))["sourceProblem"] == ""
            token.write_text("second")
            it.clock.move(seconds=60)
            await it.series("of=Cluster")
            token.unlink()
            it.clock.move(seconds=60)
            problem = (await it.series("of=Cluster"))["sourceProblem"]
        async with asking(api, url=server) as it:
            untrusted = (await it.series("of=Cluster"))["sourceProblem"]
    assert tokens == ["Bearer first"] * 8 + ["Bearer second"] * 8
    assert "its token cannot be read" in problem
    assert "certificate verify failed" in untrusted


async def test_a_node_that_prometheus_has_not_scraped_yet_has_the_gateways_samples(api: GatewayApiServer) -> None:
    async def serve(request: web.Request) -> web.Response:
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": []}})

    async with serving_as_prometheus(serve) as server, asking(api, url=server) as it:
        await it.steps(2)
        assert (await it.series("of=Node&name=a"))["items"][0]["gpus"][-1] == 8
        await it.series("of=Node&name=none", status=404)


def test_a_name_cannot_change_the_query() -> None:
    (asked, *_) = queries("Node", name='a"} or vector(1) #', step=30, labels={"cluster": "b\\"}).values()
    assert asked == (
        'count by (node) (avg_over_time(dovetail_device_promised_share_ratio{cluster="b\\\\", '
        'node="a\\"} or vector(1) #"}[120s]))'
    )


def test_models_that_count_as_one_are_added_up() -> None:
    times = Grid(tier=0, start=0, count=3)
    curves = [
        _Curve(metric={"model": model}, values=[(30.0, "1"), *more])
        for model, more in (("NVIDIA A100-SXM4-80GB", [(60.0, "3")]), ("A100-PCIE-40GB", [(90.0, "5")]))
    ]
    found = sums({"gpus": curves, "temperature": curves}, of="Model", times=times)
    assert {name: (each.gpus.tolist(), each.temperature.tolist()) for name, each in found.items()} == {
        "A100": ([2, 3, 5], [1, 3, 5])
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--prometheus-url=prom:9090"], "must be the address of a Prometheus"),
        (["--prometheus-url=https://u:secret@prom"], '"https://***@prom": must have no user and password'),
        (["--prometheus-url=http://prom", "--prometheus-token-file=/t"], "must begin with https:// where a token"),
        (["--prometheus-url=http://prom", "--prometheus-label=cluster"], 'label "cluster": write NAME=VALUE'),
        (["--prometheus-url=https://prom", "--prometheus-ca-file=/none"], 'ca-file "/none": cannot be used'),
    ],
)
def test_an_option_that_cannot_be_names_itself(options: list[str], problem: str) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    with pytest.raises(ConfigError) as refused:
        prometheus_of(parser.parse_args(options))
    assert problem in str(refused.value)
    assert "secret" not in str(refused.value)


@asynccontextmanager
async def serving_as_prometheus(
    serve: Callable[[web.Request], Any], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/api/v1/query_range", serve)
    server = TestServer(app, host="127.0.0.1", scheme="https" if tls else "http")
    await server.start_server(ssl=tls)
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


async def test_no_reader_can_make_prometheus_rest_by_asking_about_the_moment(api: GatewayApiServer) -> None:
    """A Prometheus refuses a query that ends before it starts, and after a refusal no one asks it for a while."""

    async def answer(request: web.Request) -> web.Response:
        form = await request.post()
        if float(str(form["end"])) < float(str(form["start"])):
            problem = "end timestamp must not be before start time"
            return web.json_response({"status": "error", "errorType": "bad_data", "error": problem}, status=400)
        return web.json_response({"status": "success", "data": {"result": []}})

    app = web.Application()
    app.router.add_post("/api/v1/query_range", answer)
    async with TestServer(app) as server, asking(api, url=f"http://127.0.0.1:{server.port}") as it:
        await it.steps(1)
        found = await it.series(f"of=Cluster&since={it.clock.text}", token="red-token")
        after = await it.series("of=Cluster")
    assert (found["source"], found["sourceProblem"]) == ("Prometheus", "")
    assert (after["source"], after["sourceProblem"]) == ("Prometheus", "")
