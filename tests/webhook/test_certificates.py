"""Certificates on a clock of the test's own: made, renewed, replaced; and handshakes all through a rotation."""

import asyncio
import base64
import itertools
import json
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import names
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict
from dovetail.process import serving
from dovetail.process.certificate import Certificate
from dovetail_certificates import rotation
from dovetail_certificates.keeper import Keeper, Target
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import (
    BACKDATED,
    LIFETIME,
    RENEWED_AFTER,
    Pair,
    PairError,
    authorities_in,
    facts_of,
    make,
    problem_of,
)
from dovetail_certificates.rotation import OVERLAP, SEEN_AFTER, Stored, plan
from dovetail_certificates.secret_store import ForeignSecretError
from tests.background import running
from tests.loopback import client_of

START = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = ("dovetail-webhook.dovetail-system.svc", "127.0.0.1")
SECRET = "/api/v1/namespaces/dovetail-system/secrets/dovetail-webhook"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/dovetail"
CRD = "gpuquotas.dovetail.dev"
CRDS = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD}"


class Api:
    """The two objects on loopback, with the API server's rules on resourceVersions."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        names = ("pods.dovetail.dev", "gpujobs.dovetail.dev")
        self.hooks: dict[str, Any] | None = {
            "metadata": {"name": "dovetail", "resourceVersion": "1"},
            "webhooks": [{"name": name, "clientConfig": {"url": "https://127.0.0.1/mutate"}} for name in names],
        }
        # None: the CRD is not installed.
        self.crd: dict[str, Any] | None = None
        self.writes: list[str] = []
        self.before_write: Callable[[], None] = lambda: None
        self._versions = itertools.count(2)

    def running(self) -> AbstractAsyncContextManager[Client]:
        return client_of([
            web.get(SECRET, self._read_secret),
            web.patch(SECRET, self._apply),
            web.get(HOOKS, self._read_hooks),
            web.patch(HOOKS, self._patch),
            web.get(CRDS, self._read_crd),
            web.patch(CRDS, self._apply_crd),
        ])  # fmt: skip

    @property
    def data(self) -> dict[str, bytes]:
        assert self.secret is not None
        return {key: base64.b64decode(text) for key, text in self.secret["data"].items()}

    @property
    def bundle(self) -> bytes:
        assert self.hooks is not None
        (bundle,) = {each["clientConfig"].get("caBundle", "") for each in self.hooks["webhooks"]}
        return base64.b64decode(bundle)

    async def _read_secret(self, _request: web.Request) -> web.Response:
        return _status(404) if self.secret is None else web.json_response(self.secret)

    async def _read_hooks(self, _request: web.Request) -> web.Response:
        return _status(404) if self.hooks is None else web.json_response(self.hooks)

    async def _apply(self, request: web.Request) -> web.Response:
        assert request.query["fieldManager"] == names.CERTIFICATES_MANAGER
        body = await request.json()
        self.before_write()
        version = body["metadata"].get("resourceVersion")
        if version and (self.secret is None or version != self.secret["metadata"]["resourceVersion"]):
            return _status(409)
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self.secret = body
        self.writes.append("secret")
        return web.json_response(body)

    async def _patch(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert self.hooks is not None
        if body["metadata"]["resourceVersion"] != self.hooks["metadata"]["resourceVersion"]:
            return _status(409)
        for change in body["webhooks"]:
            (hook,) = [each for each in self.hooks["webhooks"] if each["name"] == change["name"]]
            hook["clientConfig"] |= change["clientConfig"]
        self.hooks["metadata"]["resourceVersion"] = str(next(self._versions))
        self.writes.append("hooks")
        return web.json_response(self.hooks)

    async def _read_crd(self, _request: web.Request) -> web.Response:
        return _status(404) if self.crd is None else web.json_response(self.crd)

    async def _apply_crd(self, request: web.Request) -> web.Response:
        assert (request.content_type, request.query["fieldManager"]) == (
            "application/apply-patch+yaml",
            names.CERTIFICATES_MANAGER,
        )
        body = await request.json()
        assert self.crd is not None
        if body["metadata"]["resourceVersion"] != self.crd["metadata"]["resourceVersion"]:
            return _status(409)
        self.crd["spec"] |= body["spec"]
        fields = {"f:spec": {"f:conversion": {}}}
        self.crd["metadata"] |= {
            "resourceVersion": str(next(self._versions)),
            "managedFields": [{"manager": names.CERTIFICATES_MANAGER, "operation": "Apply", "fieldsV1": fields}],
        }
        self.writes.append("crd")
        return web.json_response(self.crd)

    def install_crd(self, *, strategy: str = "Webhook") -> None:
        """Install the CRD, with a conversion webhook or without."""
        conversion: dict[str, Any] = {"strategy": strategy}
        if strategy == "Webhook":
            config = {"url": "https://127.0.0.1/convert"}
            conversion["webhook"] = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
        self.crd = {"metadata": {"name": CRD, "resourceVersion": "1"}, "spec": {"conversion": conversion}}

    @property
    def crd_bundle(self) -> bytes:
        assert self.crd is not None
        return base64.b64decode(self.crd["spec"]["conversion"]["webhook"]["clientConfig"].get("caBundle", ""))


def _status(code: int) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def make_keeper(
    client: Client,
    *,
    clock: Clock,
    names: tuple[str, ...] = NAMES,
    look_seconds: float = 10.0,
    metrics: Metrics | None = None,
) -> Keeper:
    target = Target(
        namespace="dovetail-system", secret="dovetail-webhook", names=names, configuration="dovetail", converted=(CRD,)
    )
    return Keeper(client, target=target, metrics=metrics or Metrics(), now=clock, look_seconds=look_seconds)


def names_of(data: dict[str, bytes]) -> frozenset[str]:
    served = Stored.from_secret(data).served
    assert served is not None
    return facts_of(served).names


async def test_where_there_is_none_one_is_made_and_trusted() -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
    assert api.writes == ["secret", "hooks"]
    assert names_of(api.data) == set(NAMES)
    assert api.bundle == api.data["ca.crt"]
    assert api.secret is not None
    assert (api.secret["type"], api.secret["metadata"]["labels"]) == (
        "kubernetes.io/tls",
        {names.LABEL_MANAGED_BY: names.CERTIFICATES_MANAGER},
    )


async def test_a_crd_that_the_webhook_converts_trusts_what_the_configuration_trusts() -> None:
    api, clock = Api(), Clock()
    api.install_crd()
    async with api.running() as client:
        keeper = make_keeper(client, clock=clock)
        await keeper.reconcile()
        assert api.writes == ["secret", "hooks", "crd"]
        clock.now += RENEWED_AFTER
        await keeper.reconcile()
        await keeper.reconcile()
        assert api.crd_bundle == api.bundle == api.data["ca.crt"] + api.data["next-ca.crt"]
        assert api.writes == ["secret", "hooks", "crd"] * 2


async def test_the_whole_conversion_of_a_crd_is_claimed_so_that_a_chart_without_one_can_be_applied() -> None:
    api, clock = Api(), Clock()
    api.install_crd()
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
        assert api.crd is not None
        applied = api.crd["spec"]["conversion"]
        assert (applied["strategy"], applied["webhook"]["conversionReviewVersions"]) == ("Webhook", ["v1"])
        assert applied["webhook"]["clientConfig"]["url"] == "https://127.0.0.1/convert"
        # Helm has taken it over by force.
        api.crd["metadata"]["managedFields"] = [{"manager": "helm", "operation": "Apply"}]
        api.writes.clear()
        await make_keeper(client, clock=clock).reconcile()
        await make_keeper(client, clock=clock).reconcile()
    assert api.writes == ["crd"]


async def test_a_successor_is_not_served_before_the_crd_trusts_it() -> None:
    api, clock = Api(), Clock()
    api.install_crd()
    async with api.running() as client:
        keeper = make_keeper(client, clock=clock)
        await keeper.reconcile()
        first = api.data
        clock.now += RENEWED_AFTER
        await keeper.reconcile()
        await keeper.reconcile()
        api.install_crd()  # as an upgrade of the chart by hand does
        clock.now += SEEN_AFTER
        await keeper.reconcile()
    assert api.data["tls.crt"] == first["tls.crt"]
    assert api.data["next-ca.crt"] in api.crd_bundle


async def test_a_crd_without_a_webhook_is_left_as_it_is() -> None:
    api, clock = Api(), Clock()
    api.install_crd(strategy="None")
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
    assert api.writes == ["secret", "hooks"]


async def test_metrics_tell_when_the_served_certificate_is_replaced_and_when_it_expires() -> None:
    api, clock, metrics = Api(), Clock(), Metrics()
    async with api.running() as client:
        keeper = make_keeper(client, clock=clock, metrics=metrics)
        await keeper.reconcile()
        await keeper.reconcile()
    served = Stored.from_secret(api.data).served
    assert served is not None
    labels, facts = {"secret": "dovetail-webhook"}, facts_of(served)
    renewal = metrics.registry.get_sample_value("dovetail_certificate_renewal_timestamp_seconds", labels)
    expiry = metrics.registry.get_sample_value("dovetail_certificate_expiry_timestamp_seconds", labels)
    assert (renewal, expiry) == (facts.renew_at.timestamp(), facts.valid_until.timestamp())


async def test_nothing_is_written_while_nothing_is_due() -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
        written = list(api.writes)
        clock.now += RENEWED_AFTER - timedelta(seconds=1)
        await make_keeper(client, clock=clock).reconcile()
    # The CAs before it are forgotten by then, and there were none.
    assert api.writes == written


async def test_after_two_thirds_of_its_life_the_successor_is_trusted_first_and_served_later() -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        keeper = make_keeper(client, clock=clock)
        await keeper.reconcile()
        first = api.data
        clock.now += RENEWED_AFTER
        await keeper.reconcile()
        assert api.data["tls.crt"] == first["tls.crt"]
        second = api.data["next-ca.crt"]
        assert api.bundle == first["ca.crt"] + second
        await keeper.reconcile()
        clock.now += SEEN_AFTER - timedelta(seconds=1)
        await keeper.reconcile()
        assert api.data["tls.crt"] == first["tls.crt"]
        clock.now += timedelta(seconds=1)
        await keeper.reconcile()
        assert (api.data["ca.crt"], api.bundle) == (second, second + first["ca.crt"])
        assert "next.key" not in api.data
        clock.now += OVERLAP
        await keeper.reconcile()
    assert api.bundle == second


async def test_a_process_that_ends_in_the_middle_is_followed_by_one_that_goes_on() -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
        clock.now += RENEWED_AFTER
        await make_keeper(client, clock=clock).reconcile()
        successor = api.data["next.crt"]
        for _ in range(3):
            keeper = make_keeper(client, clock=clock)
            await keeper.reconcile()
            clock.now += SEEN_AFTER
        await keeper.reconcile()
    assert api.data["tls.crt"] == successor


async def test_another_url_is_served_at_once() -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
        old = api.data["ca.crt"]
        await make_keeper(client, clock=clock, names=(NAMES[0], "hook.example")).reconcile()
    assert names_of(api.data) == {NAMES[0], "hook.example"}
    assert api.bundle == api.data["ca.crt"] + old


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("text", [b"", b"nonsense", make(NAMES, now=START).key, make(NAMES, now=START).certificate])
async def test_a_broken_secret_is_replaced(key: str, text: bytes) -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
        assert api.secret is not None
        api.secret["data"][key] = base64.b64encode(text).decode()
        await make_keeper(client, clock=clock).reconcile()
    served = Stored.from_secret(api.data).served
    assert served is not None
    assert problem_of(served, names=NAMES, now=clock.now) == ""
    assert served.authority in api.bundle


async def test_anothers_secret_of_that_name_is_never_overwritten() -> None:
    api, clock = Api(), Clock()
    api.secret = {"metadata": {"name": "dovetail-webhook", "resourceVersion": "7"}, "type": "Opaque", "data": {}}
    before = json.dumps(api.secret)
    async with api.running() as client:
        with pytest.raises(ForeignSecretError, match="Secret dovetail-webhook was not made by dovetail-certificates"):
            await make_keeper(client, clock=clock).reconcile()
    assert (json.dumps(api.secret), api.writes) == (before, [])


async def test_a_look_that_fails_is_told_by_readiness_and_tried_again() -> None:
    api, clock = Api(), Clock()
    api.secret = {"metadata": {"name": "dovetail-webhook"}, "type": "Opaque"}
    async with api.running() as client:
        keeper = make_keeper(client, clock=clock, look_seconds=0.01)
        assert keeper.problem == "it has not looked yet"
        async with running(keeper.run()), asyncio.timeout(30):
            while "was not made by" not in keeper.problem:  # noqa: ASYNC110 - it looks by itself
                await asyncio.sleep(0.01)
            api.secret = None
            while keeper.problem:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert names_of(api.data) == set(NAMES)


async def test_two_processes_at_one_time_agree_on_what_the_secret_says() -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        one, other = make_keeper(client, clock=clock), make_keeper(client, clock=clock)
        await one.reconcile()
        clock.now += RENEWED_AFTER
        assert api.secret is not None

        def interfere() -> None:
            api.before_write = lambda: None
            assert api.secret is not None
            api.secret["metadata"]["resourceVersion"] = "99"

        api.before_write = interfere
        with pytest.raises(Conflict):
            await one.reconcile()
        await other.reconcile()
        await one.reconcile()
    assert api.data["next-ca.crt"] in api.bundle


async def test_where_the_configuration_is_gone_the_secret_is_kept_all_the_same() -> None:
    api, clock = Api(), Clock()
    api.hooks = None
    async with api.running() as client:
        keeper = make_keeper(client, clock=clock)
        await keeper.reconcile()
        clock.now += RENEWED_AFTER
        await keeper.reconcile()
        await keeper.reconcile()
        clock.now += SEEN_AFTER
        await keeper.reconcile()
    assert api.writes == ["secret"] * 3


async def test_a_ca_that_was_taken_out_of_a_webhook_comes_back() -> None:
    api, clock = Api(), Clock()
    async with api.running() as client:
        await make_keeper(client, clock=clock).reconcile()
        assert api.hooks is not None
        del api.hooks["webhooks"][0]["clientConfig"]["caBundle"]
        await make_keeper(client, clock=clock).reconcile()
    assert api.bundle == api.data["ca.crt"]


@pytest.mark.parametrize(
    ("moved", "problem"),
    [
        (timedelta(), ""),
        (-BACKDATED, ""),
        (-BACKDATED - timedelta(seconds=1), "a clock has been wrong"),
        (LIFETIME - timedelta(seconds=1), ""),
        (LIFETIME, "it ended at 2030-04-01 00:00Z"),
    ],
    ids=["now", "an hour slow", "slower", "in its last second", "over"],
)
def test_a_clock_that_is_wrong_by_an_hour_does_no_harm(moved: timedelta, problem: str) -> None:
    assert problem in problem_of(make(NAMES, now=START), names=NAMES, now=START + moved)
    assert bool(problem) == bool(problem_of(make(NAMES, now=START), names=NAMES, now=START + moved))


def test_a_certificate_from_a_clock_that_was_ahead_is_replaced() -> None:
    ahead = Stored(served=make(NAMES, now=START + timedelta(days=400)), since=START + timedelta(days=400))
    step = plan(ahead, bundle=b"", names=NAMES, now=START, published_at=None)
    assert step.stored.served is not None
    assert (problem_of(step.stored.served, names=NAMES, now=START), step.stored.since) == ("", START)


def test_no_bundle_grows_beyond_four_whatever_is_found_in_it() -> None:
    found = b"".join(make(NAMES, now=START - timedelta(minutes=each)).authority for each in range(9))
    step = plan(Stored(), bundle=found, names=NAMES, now=START, published_at=None)
    assert len(authorities_in(step.bundle, now=START)) == 4
    assert step.stored.served is not None
    assert step.bundle.startswith(step.stored.served.authority)


def test_a_strangers_ca_does_not_stay_trusted() -> None:
    stranger = make(NAMES, now=START).certificate
    step = plan(Stored(), bundle=stranger, names=NAMES, now=START, published_at=None)
    assert stranger not in step.bundle


def test_a_key_of_another_certificate_is_no_pair() -> None:
    one, other = make(NAMES, now=START), make(NAMES, now=START)
    for broken in (
        Pair(certificate=one.certificate, key=other.key, authority=one.authority),
        Pair(certificate=one.certificate, key=one.key, authority=other.authority),
        Pair(certificate=one.authority, key=one.key, authority=one.authority),
    ):
        with pytest.raises(PairError):
            facts_of(broken)


PAIRS = [make(NAMES, now=START + timedelta(days=each)) for each in (0, 30, 70, 400)]


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([None, *PAIRS]),
    st.sampled_from([None, *PAIRS]),
    st.none() | st.integers(-10, 200),
    st.integers(0, 500),
    st.none() | st.integers(-100, 100),
)
def test_every_state_leads_to_a_pair_that_serves_and_is_trusted(
    served: Pair | None, following: Pair | None, since: int | None, day: int, published: int | None
) -> None:
    now = START + timedelta(days=day)
    stored = Stored(served=served, since=None if since is None else START + timedelta(days=since), next=following)
    bundle = served.authority if served else b""
    for _ in range(6):
        at = None if published is None else now + timedelta(seconds=published)
        step = plan(stored, bundle=bundle, names=NAMES, now=now, published_at=at)
        assert step.stored.served is not None
        assert step.stored.served.authority in step.bundle
        # What was trusted and served before the step is trusted after it, unless it could not serve.
        if stored.served and not problem_of(stored.served, names=NAMES, now=now):
            assert stored.served.authority in step.bundle
        # Nothing is served whose CA was not published before, while the one before it could go on.
        if step.stored.served != stored.served and stored.served is not None:
            unusable = problem_of(stored.served, names=NAMES, now=now)
            assert unusable or (at is not None and now - at >= SEEN_AFTER)
        stored, bundle = Stored.from_secret(step.stored.data()), step.bundle
    assert stored.served is not None
    assert problem_of(stored.served, names=NAMES, now=now) == ""


async def test_no_handshake_fails_while_a_certificate_is_rotated(tmp_path: Path) -> None:
    """Clients trust the published bundle a while after it was published; the server reads its files a while later."""
    clock = Clock()
    clock.now = datetime.now(UTC)
    api = Api()
    async with api.running() as client:
        keeper = make_keeper(client, clock=clock)
        await keeper.reconcile()
        _mount(api, tmp_path)
        certificate = Certificate(tmp_path)
        seen = [api.bundle] * 2
        served = set()
        # The real time stays, and the certificate's life is over in it after two thirds.
        async with serving.listening(web.Application(), host="127.0.0.1", port=0, tls=certificate.context) as port:
            for step in range(8):
                if step == 1:
                    _age(api, by=RENEWED_AFTER + timedelta(minutes=1), clock=clock)
                    seen = [api.bundle] * 2
                    _mount(api, tmp_path)
                    certificate.refresh()
                await keeper.reconcile()
                seen.append(api.bundle)
                served.add(await _handshake(port, trusted=seen[-2]))
                if step % 2:
                    _mount(api, tmp_path)
                    certificate.refresh()
                served.add(await _handshake(port, trusted=seen[-2]))
                clock.now += SEEN_AFTER
    assert len(served) == 3  # the first, the same one grown old, and its successor


def _mount(api: Api, folder: Path) -> None:
    for name in ("tls.key", "tls.crt"):
        (folder / name).write_bytes(api.data[name])


def _age(api: Api, *, by: timedelta, clock: Clock) -> None:
    """The certificate as it would be that much later."""
    old = make(NAMES, now=clock.now - by)
    assert api.secret is not None
    assert api.hooks is not None
    data = Stored(served=old, since=clock.now - by).data()
    api.secret["data"] = {key: base64.b64encode(text).decode() for key, text in data.items()}
    for hook in api.hooks["webhooks"]:
        hook["clientConfig"]["caBundle"] = base64.b64encode(old.authority).decode()


async def _handshake(port: int, *, trusted: bytes) -> bytes:
    """The certificate that a client accepts which trusts these CAs alone."""
    context = ssl.create_default_context(cadata=trusted.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


def test_the_steps_are_in_the_order_of_their_times() -> None:
    assert rotation.SEEN_AFTER < rotation.OVERLAP < LIFETIME - RENEWED_AFTER
