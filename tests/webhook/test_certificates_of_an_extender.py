"""The certificates of an attached extender and of its client, on a clock of the test's own."""

import asyncio
import base64
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification

from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail_certificates import main, pairs
from dovetail_certificates.extender import CA_OVERLAP, Attached, ExtenderKeeper, plan_authorities
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import LIFETIME, Authority, PairError, authorities_in, make_authority, sign
from dovetail_certificates.secret_store import ForeignSecretError
from dovetail_certificates.signing import (
    CA_LIFETIME,
    CLIENT_LIFETIME,
    Authorities,
    Side,
    pair_facts,
    plan_pair,
)
from tests.background import eventually, running
from tests.loopback import client_of

START = datetime(2030, 1, 1, tzinfo=UTC)
FOLDER = "/api/v1/namespaces/dovetail-system/secrets/{name}"
ATTACHED = Attached(
    namespace="dovetail-system",
    secret="dovetail-extender",
    names=("dovetail-extender.dovetail-system.svc",),
    client_names=("dovetail-extender-client",),
)
CA, SERVER, CLIENT = "dovetail-extender-ca", "dovetail-extender", "dovetail-extender-client"


class Api:
    """Secrets on loopback."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self._versions = itertools.count(1)

    def running(self) -> AbstractAsyncContextManager[Client]:
        return client_of([web.get(FOLDER, self._read), web.patch(FOLDER, self._apply)])

    def data(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(text) for key, text in self.secrets[name]["data"].items()}

    def put(self, name: str, data: dict[str, bytes]) -> None:
        self.secrets[name]["data"] = {key: base64.b64encode(text).decode() for key, text in data.items()}

    async def _read(self, request: web.Request) -> web.Response:
        found = self.secrets.get(request.match_info["name"])
        if found is None:
            return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
        return web.json_response(found)

    async def _apply(self, request: web.Request) -> web.Response:
        body = await request.json()
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self.secrets[request.match_info["name"]] = body
        self.writes.append(request.match_info["name"])
        return web.json_response(body)


class Scene:
    """A keeper with its API server and its clock."""

    def __init__(self, client: Client, *, api: Api) -> None:
        self.api = api
        self.now = START
        self.metrics = Metrics()
        self._client = client

    async def at(self, days: float) -> None:
        """Check at this time."""
        self.now = START + timedelta(days=days)
        keeper = ExtenderKeeper(self._client, attached=ATTACHED, metrics=self.metrics, now=lambda: self.now)
        await keeper.reconcile()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    api = Api()
    async with api.running() as client:
        yield Scene(client, api=api)


async def test_one_ca_signs_for_both_sides_and_its_key_is_in_neither(scene: Scene) -> None:
    await scene.at(0)
    await scene.at(1)
    assert scene.api.writes == [CA, SERVER, CLIENT]
    ca, server, client = (scene.api.data(name) for name in (CA, SERVER, CLIENT))
    assert server["ca.crt"] == client["ca.crt"] == ca["ca.crt"]
    assert set(server) == set(client) == {"tls.crt", "tls.key", "ca.crt"}
    assert (scene.api.secrets[CA]["type"], scene.api.secrets[CLIENT]["type"]) == ("Opaque", "kubernetes.io/tls")


async def test_certificates_are_replaced_and_the_ca_remains(scene: Scene) -> None:
    await scene.at(0)
    before = {name: scene.api.data(name) for name in (CA, SERVER, CLIENT)}
    await scene.at(LIFETIME.days * 2 / 3)
    assert scene.api.data(SERVER)["tls.crt"] != before[SERVER]["tls.crt"]
    assert scene.api.data(CLIENT) == before[CLIENT]
    await scene.at(CLIENT_LIFETIME.days * 2 / 3)
    assert scene.api.data(CLIENT)["tls.crt"] != before[CLIENT]["tls.crt"]
    assert scene.api.data(CLIENT)["ca.crt"] == before[CLIENT]["ca.crt"]
    assert scene.api.data(CA) == before[CA]


async def test_the_successor_of_the_ca_is_trusted_for_a_year_before_it_signs(scene: Scene) -> None:
    await scene.at(0)
    first = scene.api.data(CA)["ca.crt"]
    due = CA_LIFETIME.days * 2 / 3 + 1
    await scene.at(due)
    second = scene.api.data(CA)["next-ca.crt"]
    for name in (SERVER, CLIENT):
        assert scene.api.data(name)["ca.crt"] == first + second
    await scene.at(due + CA_OVERLAP.days - 1)
    assert scene.api.data(CA)["ca.crt"] == first
    await scene.at(due + CA_OVERLAP.days)
    assert (scene.api.data(CA)["ca.crt"], scene.api.data(CA)["previous-ca.crt"]) == (second, first)
    assert scene.api.data(SERVER)["ca.crt"] == second + first
    await scene.at(CA_LIFETIME.days + 1)
    assert scene.api.data(CLIENT)["ca.crt"] == second


@pytest.mark.parametrize("name", [SERVER, CLIENT])
async def test_a_deleted_certificate_is_made_by_the_same_ca(scene: Scene, name: str) -> None:
    await scene.at(0)
    before = scene.api.data(name)
    del scene.api.secrets[name]
    await scene.at(1)
    assert scene.api.data(name)["tls.crt"] != before["tls.crt"]
    assert scene.api.data(name)["ca.crt"] == before["ca.crt"]


async def test_a_deleted_ca_is_trusted_no_longer(scene: Scene) -> None:
    await scene.at(0)
    first = scene.api.data(CA)["ca.crt"]
    del scene.api.secrets[CA]
    await scene.at(1)
    for name in (SERVER, CLIENT):
        assert first not in scene.api.data(name)["ca.crt"]
        assert plan_pair(
            scene.api.data(name),
            authorities=Authorities.from_secret(scene.api.data(CA)),
            side=Side.server(ATTACHED.names) if name == SERVER else Side.client(ATTACHED.client_names),
            now=scene.now,
        )[1] == ""  # fmt: skip


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
async def test_a_broken_certificate_is_replaced_and_a_broken_bundle_repaired(scene: Scene, key: str) -> None:
    await scene.at(0)
    scene.api.put(SERVER, scene.api.data(SERVER) | {key: b"nonsense"})
    await scene.at(1)
    assert authorities_in(scene.api.data(SERVER)["ca.crt"], now=scene.now)
    written = list(scene.api.writes)
    await scene.at(2)
    assert scene.api.writes == written


@pytest.mark.parametrize("key", ["ca.key", "ca.crt", "next-ca.key"])
async def test_a_ca_that_cannot_sign_is_replaced(scene: Scene, key: str) -> None:
    await scene.at(0)
    due = CA_LIFETIME.days * 2 / 3 + 1
    await scene.at(due)
    scene.api.put(CA, scene.api.data(CA) | {key: b"nonsense"})
    await scene.at(due + 1)
    await scene.at(due + 2)
    authorities = Authorities.from_secret(scene.api.data(CA))
    assert authorities.current is not None
    assert authorities.current.certificate in scene.api.data(CLIENT)["ca.crt"]
    written = list(scene.api.writes)
    await scene.at(due + 3)
    assert scene.api.writes == written


async def test_a_clock_that_was_ahead_when_the_ca_was_made_costs_a_new_one(scene: Scene) -> None:
    await scene.at(500)
    ahead = scene.api.data(CA)["ca.crt"]
    await scene.at(0)
    assert scene.api.data(CA)["ca.crt"] != ahead


async def test_a_secret_of_someone_else_is_never_overwritten(scene: Scene) -> None:
    scene.api.secrets[CLIENT] = {"metadata": {"name": CLIENT}, "type": "kubernetes.io/tls", "data": {}}
    with pytest.raises(ForeignSecretError, match="Secret dovetail-extender-client was not made by"):
        await scene.at(0)
    assert CLIENT not in scene.api.writes


async def test_metrics_say_when_each_certificate_expires(scene: Scene) -> None:
    await scene.at(0)
    for name, life in ((SERVER, LIFETIME), (CLIENT, CLIENT_LIFETIME)):
        labels = {"secret": name}
        expiry = scene.metrics.registry.get_sample_value("dovetail_certificate_expiry_timestamp_seconds", labels)
        assert expiry == (START + life).timestamp()


OLD, YOUNG, LATER = (make_authority(now=START, lifetime=CA_LIFETIME) for _ in range(3))
UNREADABLE = Authority(certificate=b"-", key=b"-")
WITHOUT_KEY = Authority(certificate=OLD.certificate, key=LATER.key)
YEAR = START + CA_OVERLAP
ENDED = START + CA_LIFETIME
PLANS: dict[str, tuple[Authorities, datetime, Authorities]] = {
    "a second before its year is over, the successor does not sign": (
        both := Authorities(current=OLD, next=YOUNG, previous=LATER.certificate),
        YEAR - timedelta(seconds=1),
        both,
    ),
    "then it signs, and the CA before it is trusted in place of those before": (
        both,
        YEAR,
        Authorities(current=YOUNG, previous=OLD.certificate),
    ),
    "a successor that cannot be read goes, and nothing else": (
        Authorities(current=OLD, next=UNREADABLE, previous=LATER.certificate),
        START,
        Authorities(current=OLD, previous=LATER.certificate),
    ),
    "an earlier CA that has ended goes, and the others stay": (
        Authorities(
            current=(recent := make_authority(now=ENDED, lifetime=CA_LIFETIME)),
            previous=OLD.certificate + (kept := make_authority(now=YEAR, lifetime=CA_LIFETIME)).certificate,
        ),
        ENDED,
        Authorities(current=recent, previous=kept.certificate),
    ),
}


@pytest.mark.parametrize("case", PLANS)
def test_the_next_content_of_the_cas_secret_follows_from_the_last_one(case: str) -> None:
    stored, now, wanted = PLANS[case]
    planned, reason = plan_authorities(stored, now=now)
    assert (planned, bool(reason)) == (wanted, wanted != stored)


@pytest.mark.parametrize(
    ("current", "now", "trusted"),
    [
        (WITHOUT_KEY, START, OLD.certificate),
        (OLD, ENDED, b""),
        (OLD, ENDED - timedelta(seconds=1), None),
        (UNREADABLE, START, b""),
    ],
    ids=["has lost its key", "has ended", "is about to end", "cannot be read"],
)
def test_a_ca_that_cannot_sign_is_replaced_and_trusted_as_long_as_it_counts(
    current: Authority, now: datetime, trusted: bytes | None
) -> None:
    planned, _ = plan_authorities(Authorities(current=current, next=YOUNG if trusted is None else None), now=now)
    assert planned.current is not None
    if trusted is None:
        assert planned.current == YOUNG
    else:
        assert planned.current.certificate not in {current.certificate, YOUNG.certificate}
        assert planned.previous == trusted


def test_without_a_ca_nothing_is_signed() -> None:
    with pytest.raises(PairError, match="there is no CA"):
        plan_pair({}, authorities=Authorities(), side=Side.server(["x"]), now=START)


async def test_a_ca_that_an_administrator_puts_into_the_secret_signs_and_stays(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.at(0)
    with monkeypatch.context() as patch:
        patch.setattr(pairs, "_CA_NAME", "Example Corporation")
        own = make_authority(now=scene.now, lifetime=CA_LIFETIME)
    scene.api.put(CA, Authorities(current=own).data())
    await scene.at(1)
    assert scene.api.data(SERVER)["ca.crt"] == scene.api.data(CLIENT)["ca.crt"] == own.certificate
    written = list(scene.api.writes)
    await scene.at(2)
    assert scene.api.writes == written


async def test_each_side_accepts_the_other_by_a_handshake(scene: Scene, tmp_path: Path) -> None:
    await scene.at((datetime.now(UTC) - START).total_seconds() / 86400)
    contexts = {}
    for name, purpose in ((SERVER, ssl.Purpose.CLIENT_AUTH), (CLIENT, ssl.Purpose.SERVER_AUTH)):
        for key, text in scene.api.data(name).items():
            (tmp_path / f"{name}-{key}").write_bytes(text)
        context = ssl.create_default_context(purpose, cafile=tmp_path / f"{name}-ca.crt")
        context.load_cert_chain(tmp_path / f"{name}-tls.crt", tmp_path / f"{name}-tls.key")
        context.verify_mode = ssl.CERT_REQUIRED
        contexts[name] = context
    ends = [ssl.MemoryBIO(), ssl.MemoryBIO()]
    server = contexts[SERVER].wrap_bio(ends[0], ends[1], server_side=True)
    client = contexts[CLIENT].wrap_bio(ends[1], ends[0], server_hostname=ATTACHED.names[0])
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert dict(part for each in client.getpeercert()["subject"] for part in each)
    assert ("DNS", CLIENT) in server.getpeercert()["subjectAltName"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "name --secret for the webhook, --extender-secret, or both"),
        (("--secret=x",), "--secret needs --name"),
        (("--extender-secret=x", "--client-name=y"), "--extender-secret needs --extender-name"),
    ],
)
def test_incomplete_options_are_refused(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([*options, "--kubeconfig=/dev/null"]) == 2
    assert said in capsys.readouterr().err


async def test_the_certificates_of_webhook_and_extender_are_kept_both(monkeypatch: pytest.MonkeyPatch) -> None:
    api, looked = Api(), set[str]()

    async def read(request: web.Request) -> web.Response:
        looked.add(request.match_info["name"])
        return await api._read(request)

    options = ["--secret=dovetail-webhook", "--name=a", "--extender-secret=dovetail-extender", "--extender-name=b"]
    args = main._parser().parse_args([*options, "--client-name=c", "--metrics-host=127.0.0.1", "--metrics-port=0"])
    async with client_of([web.get(FOLDER, read), web.patch(FOLDER, api._apply)]) as client:
        monkeypatch.setattr(main, "load_connection", lambda _path: client.connection)
        async with running(main._serve(args, Settings(), asyncio.Event())):
            await eventually(lambda: {"dovetail-webhook-ca", CA, SERVER, CLIENT} <= looked)


async def test_what_is_made_holds_before_the_strictest_check_of_a_chain(scene: Scene) -> None:
    """RFC 5280 as OpenSSL and Go read it: key usage, basic constraints and key identifiers of CA and certificate."""
    await scene.at((datetime.now(UTC) - START).total_seconds() / 86400)
    authority = x509.load_pem_x509_certificate(scene.api.data(CA)["ca.crt"])
    store = verification.Store([authority])
    builder = verification.PolicyBuilder().store(store).time(datetime.now(UTC))
    server, client = (x509.load_pem_x509_certificate(scene.api.data(name)["tls.crt"]) for name in (SERVER, CLIENT))
    names = (x509.DNSName(each) for each in ATTACHED.names)
    for name in names:
        assert builder.build_server_verifier(name).verify(server, []) == [server, authority]
    assert builder.build_client_verifier().verify(client, []).chain == [client, authority]
    with pytest.raises(verification.VerificationError):
        builder.build_client_verifier().verify(server, [])
    with pytest.raises(verification.VerificationError):
        builder.build_server_verifier(x509.DNSName(ATTACHED.client_names[0])).verify(client, [])
    # A key that is stolen from a Secret that is mounted signs nothing.
    key = serialization.load_pem_private_key(scene.api.data(SERVER)["tls.key"], password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    forged = sign(
        ["x"], authority=Authority(certificate=scene.api.data(SERVER)["tls.crt"], key=_pem(key)), now=scene.now
    )
    leaf = x509.load_pem_x509_certificate(forged.certificate)
    with pytest.raises(verification.VerificationError):
        builder.build_server_verifier(x509.DNSName("x")).verify(leaf, [server])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    found: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return found


@pytest.mark.parametrize(
    ("at", "ours"),
    [
        (START, [1, 0]),
        (START + CA_LIFETIME, [1]),
        (START + CA_LIFETIME + timedelta(days=1), []),
    ],
)
def test_of_a_bundle_our_cas_count_that_have_not_ended_the_newest_first(at: datetime, ours: list[int]) -> None:
    made = [make_authority(now=START + timedelta(days=day), lifetime=CA_LIFETIME).certificate for day in (0, 1)]
    stranger = sign(["x"], authority=make_authority(now=START, lifetime=CA_LIFETIME), now=START).certificate
    bundle = made[0] + stranger + made[1]
    assert authorities_in(bundle, now=at) == [made[each] for each in ours]


@pytest.mark.parametrize("signer", ["current", "next", "previous", "another"])
def test_a_certificate_of_each_ca_that_is_trusted_stays(signer: str) -> None:
    """Its CA may have signed it before another one took its place, or after."""
    cas = {"current": OLD, "next": YOUNG, "previous": LATER, "another": make_authority(now=START, lifetime=CA_LIFETIME)}
    authorities = Authorities(current=OLD, next=YOUNG, previous=LATER.certificate)
    pair = sign(ATTACHED.names, authority=cas[signer], now=START)
    found = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authorities.trusted()}
    kept, reason = plan_pair(found, authorities=authorities, side=Side.server(ATTACHED.names), now=START)
    assert (kept == found, reason == "") == (signer != "another",) * 2
    facts = pair_facts(found, authorities=authorities, now=START)
    assert (facts is None) == (signer == "another")
