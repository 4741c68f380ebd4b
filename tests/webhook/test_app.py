import asyncio
import base64
import io
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from dovetail import names
from dovetail.api.reasons import start as says
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.process import serving
from dovetail.process.certificate import Certificate
from dovetail.process.connections import Connections
from dovetail_webhook.admission_review import ReviewError, denied, uid_of
from dovetail_webhook.app import AT_ONCE, _Desk, _sent, application
from dovetail_webhook.handler import Answer, Reviewer
from dovetail_webhook.metrics import Metrics
from tests import virtual_time
from tests.authority import Authority

REVIEWER = Reviewer(policy="Balanced", vendors=DEFAULT_VENDORS)


def make_review(kind: str = "Pod", **request: Any) -> dict[str, Any]:
    """What the API server sends, with its usual ballast."""
    pod = {"metadata": {"annotations": {names.REQUEST: "1"}}, "spec": {"containers": [{"name": "main"}]}}
    usual = {"uid": "u-1", "kind": {"group": "", "version": "v1", "kind": kind}, "operation": "CREATE", "object": pod}
    whole = {**usual, "userInfo": {"username": "ada", "groups": ["x"]}, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole}


async def post(
    body: Any,
    *,
    metrics: Metrics | None = None,
    seconds: float = 4.0,
    connections: Connections | None = None,
    path: str = "mutate",
) -> tuple[int, str]:
    reviewer = Reviewer(policy="Balanced", vendors=DEFAULT_VENDORS)
    app = application(reviewer, metrics=metrics or Metrics(), connections=connections, seconds=seconds)
    async with (
        serving.listening(app, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession() as http,
        http.post(
            f"http://127.0.0.1:{port}/{path}", data=io.BytesIO(body) if isinstance(body, bytes) else json.dumps(body)
        ) as got,
    ):
        return got.status, await got.text()


async def test_the_answer_is_a_review_with_a_patch() -> None:
    status, text = await post(make_review())
    answer = json.loads(text)
    assert (status, answer["apiVersion"], answer["kind"]) == (200, "admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    patch = json.loads(base64.b64decode(response["patch"]))
    assert {"op": "add", "path": "/spec/schedulerName", "value": "dovetail"} in patch


async def test_a_request_that_cannot_be_read_is_denied_with_a_sentence() -> None:
    pod = {"metadata": {"annotations": {names.REQUEST: "-1"}}, "spec": {"containers": [{"name": "main"}]}}
    response = json.loads((await post(make_review(object=pod)))[1])["response"]
    assert not response["allowed"]
    assert response["status"]["message"].startswith('gpu "-1": expected a number')


async def test_a_job_gets_its_users_name() -> None:
    response = json.loads((await post(make_review("GPUJob", object={"metadata": {}})))[1])["response"]
    (operation,) = json.loads(base64.b64decode(response["patch"]))
    assert operation["value"] == {names.USER: "ada"}


PLAIN = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


async def test_a_translation_is_a_step_of_its_own() -> None:
    pod = {"metadata": {}, "spec": {"containers": [PLAIN]}}
    response = json.loads((await post(make_review(object=pod), path="translate"))[1])["response"]
    paths = {each["path"] for each in json.loads(base64.b64decode(response["patch"]))}
    assert paths == {"/metadata/annotations", "/spec/containers", "/spec/tolerations"}
    # Elsewhere the same pod is the vendor's.
    response = json.loads((await post(make_review(object=pod)))[1])["response"]
    assert (response["allowed"], response.get("patch")) == (True, None)


async def test_only_requests_of_pods_are_translated() -> None:
    response = json.loads((await post(make_review("GPUJob"), path="translate"))[1])["response"]
    assert not response["allowed"]
    assert "only the requests of pods are translated" in response["status"]["message"]


async def test_what_no_vendor_could_give_is_denied_with_a_sentence() -> None:
    pod = {"metadata": {}, "spec": {"containers": [{**PLAIN, "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]}}
    response = json.loads((await post(make_review(object=pod), path="translate"))[1])["response"]
    assert response["status"]["message"].startswith(
        'nvidia.com/gpu of container main "0.5": must be a whole number of GPUs, 9999 at most'
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no AdmissionReview of admission.k8s.io/v1"),
        ({"request": {"kind": {"kind": "Pod"}}}, "no AdmissionReview of admission.k8s.io/v1"),
    ],
)
async def test_what_is_no_review_is_a_bad_request(body: Any, said: str) -> None:
    status, text = await post(body)
    assert status == 400
    assert said in text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (make_review("Node"), "kind Node is not reviewed here; allowed are Pod, GPUJob"),
        (
            {"request": {"uid": "u-1"}},
            "no AdmissionReview of admission.k8s.io/v1: Object missing required field `kind`",
        ),
    ],
)
async def test_a_review_that_cannot_be_read_is_denied_where_its_uid_is_known(body: Any, said: str) -> None:
    status, text = await post(body)
    response = json.loads(text)["response"]
    assert (status, response["uid"], response["allowed"]) == (200, "u-1", False)
    assert said in response["status"]["message"]


def large(review: dict[str, Any]) -> dict[str, Any]:
    """The same with an annotation of 60 kB."""
    review["request"]["object"]["metadata"]["annotations"]["note"] = "x" * 60_000
    return review


async def test_a_review_that_others_keep_waiting_is_denied_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_reviewer: Reviewer, _body: bytes) -> Answer:
        time.sleep(0.3)
        raise ReviewError("too late to matter")

    monkeypatch.setattr(Reviewer, "answer", slow)
    status, text = await post(large(make_review()), seconds=0.05)
    response = json.loads(text)["response"]
    assert (status, response["allowed"]) == (200, False)
    assert "no answer within 0.05 s, as others were reviewed: try again" in response["status"]["message"]


async def test_a_small_review_does_not_wait_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    as_it_is = Reviewer.answer

    def answer(reviewer: Reviewer, body: bytes | bytearray) -> Answer:
        if b"xxxx" in body:
            begun.release()
            assert may_end.wait(60)
        return as_it_is(reviewer, body)

    monkeypatch.setattr(Reviewer, "answer", answer)
    app = application(REVIEWER, metrics=Metrics(), seconds=60)
    async with serving.listening(app, host="127.0.0.1", port=0) as port, aiohttp.ClientSession() as http:

        async def allowed(review: dict[str, Any]) -> bool:
            async with http.post(f"http://127.0.0.1:{port}/mutate", json=review) as got:
                response: dict[str, Any] = (await got.json(content_type=None))["response"]
                return bool(response["allowed"])

        # One more than there are threads.
        others = [asyncio.create_task(allowed(large(make_review()))) for _ in range(AT_ONCE + 1)]
        for _ in range(AT_ONCE):
            await asyncio.to_thread(begun.acquire)
        assert await allowed(make_review())
        assert not any(other.done() for other in others)
        may_end.set()
        assert all(await asyncio.gather(*others))


async def test_the_connections_whose_deadlines_rest_during_a_review_are_those_that_it_was_given() -> None:
    """With others, the deadline for a request's headers would end every connection that has had a request."""

    class Watched(Connections):
        requests = 0

        def answering(self, request: web.BaseRequest) -> AbstractContextManager[None]:
            self.requests += 1
            return super().answering(request)

    given = Watched()
    assert (await post(make_review(), connections=given))[0] == 200
    assert given.requests == 1


async def test_every_outcome_is_counted() -> None:
    metrics = Metrics()
    await post(make_review(), metrics=metrics)
    await post(make_review(object={"metadata": {}, "spec": {"containers": [], "schedulerName": "x"}}), metrics=metrics)
    counted = {
        (sample.labels["kind"], sample.labels["outcome"]): sample.value
        for family in metrics.reviews.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    assert counted == {("Pod", "patched"): 1, ("Pod", "unchanged"): 1}


@pytest.mark.parametrize("stranger", ["shows none", "of another CA"])
async def test_with_a_ca_of_clients_only_a_known_client_gets_past_the_handshake(tmp_path: Path, stranger: str) -> None:
    authority = Authority()
    folder = authority.sign("127.0.0.1").write(tmp_path / "ours", authority=authority.certificate)
    served = Certificate(folder, clients=folder / "ca.crt")
    app = application(Reviewer(policy="Balanced", vendors=DEFAULT_VENDORS), metrics=Metrics())
    known, other = (ssl.create_default_context(cadata=authority.certificate.decode()) for _ in range(2))
    known.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    if stranger == "of another CA":
        pair = Authority().sign("127.0.0.1").write(tmp_path / "other", authority=authority.certificate)
        other.load_cert_chain(pair / "tls.crt", pair / "tls.key")
    async with (
        serving.listening(app, host="127.0.0.1", port=0, tls=served.context) as port,
        aiohttp.ClientSession() as http,
    ):
        url = f"https://127.0.0.1:{port}/mutate"
        async with http.post(url, json=make_review(), ssl=known) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await http.post(url, json=make_review(), ssl=other)


class Slow:
    """A request whose body comes after a while, and a client that may read no answer."""

    def __init__(self, *, body_seconds: float) -> None:
        self.body_seconds = body_seconds
        self.aborted_at: list[float] = []
        self.transport = self

    def abort(self) -> None:
        self.aborted_at.append(virtual_time.clock())

    @asynccontextmanager
    async def read(self, _http: Any) -> AsyncIterator[bytearray]:
        await asyncio.sleep(self.body_seconds)
        yield bytearray(json.dumps(large(make_review())).encode())


class Full:
    """Slots that none gets."""

    async def run(self, _work: Any, *, memory: int) -> Answer:
        await asyncio.sleep(3600)
        raise AssertionError(memory)


class Unread(web.Response):
    """An answer that its client does not read."""

    async def write_eof(self, _data: bytes = b"") -> None:
        await asyncio.sleep(3600)


def desk(metrics: Metrics) -> _Desk:
    connections: Any = SimpleNamespace(answering=lambda _http: nullcontext())
    return _Desk(metrics=metrics, connections=connections, seconds=4.0)


@pytest.mark.parametrize("body_seconds", [0.0, 2.5])
def test_the_time_for_a_review_counts_from_its_headers(body_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server waits five seconds in all, however slowly it sent the body."""
    metrics, sent = Metrics(), list[tuple[float, bytes]]()

    async def send(response: Any, *, to: Any) -> Any:
        sent.append((virtual_time.clock() - 1000, response.body))
        return response

    async def scenario() -> None:
        made, http = desk(metrics), Slow(body_seconds=body_seconds)
        made._bodies, made._slots = http, Full()  # type: ignore[assignment]
        await made.review(http, reviewer=REVIEWER)  # type: ignore[arg-type]

    monkeypatch.setattr("dovetail_webhook.app._sent", send)
    virtual_time.run(scenario())
    [(at, body)] = sent
    assert at == 4
    assert not json.loads(body)["response"]["allowed"]
    assert metrics.registry.get_sample_value(
        "dovetail_webhook_reviews_total", {"kind": "unknown", "outcome": "denied"}
    ) == 1  # fmt: skip


def test_a_client_that_does_not_read_its_answer_is_left_after_five_seconds() -> None:
    http = Slow(body_seconds=0)

    async def scenario() -> None:
        response = Unread(text="x")
        response.prepare = lambda _http: asyncio.sleep(0)  # type: ignore[method-assign,assignment]
        await _sent(response, to=http)  # type: ignore[arg-type]

    virtual_time.run(scenario())
    assert http.aborted_at == [1005]


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        (b'{"kind":"AdmissionReview","request":{"uid":"u-1","kind":{}}}', "u-1"),
        (b'{ "request" : { "uid" : "u-1" }}', "u-1"),
        (b'{"request":{"name":"x","uid":"u-1"}}', ""),
        (b'{"pad":"' + b"x" * 500 + b'","request":{"uid":"u-1"}}', ""),
        (b'{"request":{"uid":"' + b"x" * 65 + b'"}}', ""),
        (b'{"request":{"uid":"a b"}}', ""),
    ],
    ids=["as it comes", "with spaces", "another order", "too far", "too long", "no uid"],
)
def test_the_uid_of_a_review_stands_before_all_that_a_user_wrote(text: bytes, uid: str) -> None:
    assert uid_of(text) == uid


# What a sentence about a review that does not take place begins with.
_BEGUN = len(says.NOT_REVIEWED(problem="").message)


@pytest.mark.parametrize(("length", "said"), [(2000 - _BEGUN, 2000), (2001 - _BEGUN, 2000)])
def test_a_sentence_of_an_answer_has_a_bound(length: int, said: int) -> None:
    response = json.loads(denied("u-1", sentence=says.NOT_REVIEWED(problem="x" * length)))["response"]
    assert (len(response["status"]["message"]), response["status"]["code"]) == (said, 400)


async def test_a_body_counts_as_held_until_its_answer_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise clients that read no answers would cost more memory than those that send."""
    held, seen = list[bool](), list[bool]()

    class Bodies:
        @asynccontextmanager
        async def read(self, _http: Any) -> AsyncIterator[bytearray]:
            held.append(True)
            yield bytearray(json.dumps(large(make_review())).encode())
            held.clear()

    async def send(response: Any, *, to: Any) -> Any:
        seen.append(bool(held))
        return response

    monkeypatch.setattr("dovetail_webhook.app._sent", send)
    made = desk(Metrics())
    made._bodies = Bodies()  # type: ignore[assignment]
    await made.review(SimpleNamespace(), reviewer=REVIEWER)  # type: ignore[arg-type]
    assert (seen, held) == ([True], [])
