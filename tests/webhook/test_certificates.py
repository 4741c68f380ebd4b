"""The webhook's certificate on a clock of the test's own: made, renewed and replaced under a CA that stays."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from dovetail import names
from dovetail.kube.errors import Conflict
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import (
    BACKDATED,
    LIFETIME,
    RENEWED_AFTER,
    Pair,
    PairError,
    facts_of,
    make_authority,
    problem_of,
    sign,
)
from dovetail_certificates.secret_store import ForeignSecretError, UnusableAuthorityError
from dovetail_certificates.signing import CA_LIFETIME
from tests.background import running
from tests.webhook.certificates import CA, LEAF, NAMES, START, Api, Clock, Scene, install, make_keeper


@pytest.fixture
async def installed() -> AsyncIterator[Scene]:
    """An installed release that serves its first certificate."""
    api = Api(clock := Clock())
    async with api.running() as client:
        await install(client, api=api, clock=clock)
        api.writes.clear()
        yield Scene(api, client, clock)


async def reconcile(scene: Scene, *, names: tuple[str, ...] = NAMES, metrics: Metrics | None = None) -> None:
    await make_keeper(scene.client, clock=scene.clock, names=names, metrics=metrics).reconcile()


def pair_of(api: Api) -> Pair:
    data = api.data(LEAF)
    return Pair(certificate=data["tls.crt"], key=data["tls.key"], authority=api.data(CA)["ca.crt"])


def make(at: datetime) -> Pair:
    return sign(NAMES, authority=make_authority(now=at, lifetime=CA_LIFETIME), now=at)


async def test_the_ca_of_the_secret_signs_the_certificate(installed: Scene) -> None:
    assert facts_of(pair_of(installed.api)).names == set(NAMES)
    secret = installed.api.secrets[LEAF]
    assert secret["type"] == "kubernetes.io/tls"
    assert secret["metadata"]["labels"] == {names.LABEL_MANAGED_BY: names.CERTIFICATES_MANAGER}
    assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}


async def test_the_certificate_is_replaced_after_two_thirds_of_its_life_and_no_ca_is_published(
    installed: Scene,
) -> None:
    api, clock = installed.api, installed.clock
    bundle, first = api.bundle, api.data(LEAF)["tls.crt"]
    clock.now += RENEWED_AFTER - timedelta(seconds=1)
    await reconcile(installed)
    assert api.writes == []
    clock.now += timedelta(seconds=1)
    await reconcile(installed)
    assert api.writes == [LEAF]
    assert api.data(LEAF)["tls.crt"] != first
    assert (api.bundle, api.data(LEAF)["ca.crt"]) == (bundle, bundle)


async def test_a_secret_that_somebody_edited_is_renewed_all_the_same(installed: Scene) -> None:
    installed.api.edited.add(LEAF)
    installed.clock.now += RENEWED_AFTER
    await reconcile(installed)
    assert installed.api.writes == [LEAF]


async def test_a_certificate_of_another_ca_is_replaced_at_once(installed: Scene) -> None:
    stranger = make(START)
    old = {"tls.crt": stranger.certificate, "tls.key": stranger.key, "next.crt": stranger.certificate}
    installed.api.put(LEAF, old | {"ca.crt": stranger.authority})
    await reconcile(installed)
    assert problem_of(pair_of(installed.api), names=NAMES, now=START) == ""
    assert set(installed.api.data(LEAF)) == {"tls.crt", "tls.key", "ca.crt"}


async def test_metrics_tell_when_certificate_and_ca_are_replaced_and_when_they_expire(installed: Scene) -> None:
    metrics = Metrics()
    await reconcile(installed, metrics=metrics)
    for name, life in ((LEAF, LIFETIME), (CA, CA_LIFETIME)):
        labels = {"secret": name}
        renewal = metrics.registry.get_sample_value("dovetail_certificate_renewal_timestamp_seconds", labels)
        expiry = metrics.registry.get_sample_value("dovetail_certificate_expiry_timestamp_seconds", labels)
        assert (renewal, expiry) == ((START + life * 2 / 3).timestamp(), (START + life).timestamp())


async def test_another_url_is_served_at_once(installed: Scene) -> None:
    await reconcile(installed, names=(NAMES[0], "hook.example"))
    assert facts_of(pair_of(installed.api)).names == {NAMES[0], "hook.example"}


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("text", [b"", b"nonsense", make(START).key, make(START).certificate])
async def test_a_broken_secret_is_replaced(installed: Scene, key: str, text: bytes) -> None:
    api = installed.api
    api.put(LEAF, api.data(LEAF) | {key: text})
    await reconcile(installed)
    assert problem_of(pair_of(api), names=NAMES, now=START) == ""
    assert api.data(LEAF)["ca.crt"] == api.data(CA)["ca.crt"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no CA"),
        ({}, "there is no CA"),
        ({"ca.crt": b"nonsense", "ca.key": b"nonsense"}, "it cannot be read"),
        ({"ca.key": b""}, "it cannot be read"),
        ({"ca.key": make_authority(now=START, lifetime=CA_LIFETIME).key}, "the key is not that of the CA"),
    ],
    ids=["no Secret", "empty", "nonsense", "no key", "another's key"],
)
async def test_without_a_ca_that_can_sign_nothing_is_written(
    installed: Scene, content: dict[str, bytes] | None, problem: str
) -> None:
    api = installed.api
    if content is None:
        del api.secrets[CA]
    else:
        api.put(CA, api.data(CA) | content if content else {})
    del api.secrets[LEAF]
    with pytest.raises(UnusableAuthorityError, match=rf"Secret {CA}: .*{problem}.*`helm upgrade`"):
        await reconcile(installed)
    assert api.writes == []


async def test_a_ca_whose_time_is_over_signs_nothing(installed: Scene) -> None:
    installed.clock.now += CA_LIFETIME
    with pytest.raises(UnusableAuthorityError, match="it ended at 2039-12-30 00:00Z"):
        await reconcile(installed)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [({}, "kubernetes.io/tls"), ({names.LABEL_MANAGED_BY: names.CERTIFICATES_MANAGER}, "Opaque")],
    ids=["without our label", "of another type"],
)
async def test_another_s_secret_of_that_name_is_never_overwritten(
    installed: Scene, labels: dict[str, str], kind: str
) -> None:
    api = installed.api
    metadata = {"name": LEAF, "resourceVersion": "7", "labels": labels}
    api.secrets[LEAF] = {"metadata": metadata, "type": kind, "data": {}}
    before = json.dumps(api.secrets[LEAF])
    with pytest.raises(ForeignSecretError, match="Secret dovetail-webhook was not made by dovetail-certificates"):
        await reconcile(installed)
    assert (json.dumps(api.secrets[LEAF]), api.writes) == (before, [])


async def test_a_check_that_fails_is_told_by_readiness_and_tried_again(installed: Scene) -> None:
    api = installed.api
    authority = api.secrets.pop(CA)
    del api.secrets[LEAF]
    keeper = make_keeper(installed.client, clock=installed.clock, look_seconds=0.01)
    assert keeper.problem == "it has not looked yet"
    async with running(keeper.run()), asyncio.timeout(30):
        while "there is no CA" not in keeper.problem:  # noqa: ASYNC110 - it looks by itself
            await asyncio.sleep(0.01)
        api.secrets[CA] = authority
        while keeper.problem:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert facts_of(pair_of(api)).names == set(NAMES)


async def test_of_two_processes_at_one_time_the_second_sees_what_the_first_wrote(installed: Scene) -> None:
    api = installed.api
    installed.clock.now += RENEWED_AFTER

    def interfere() -> None:
        api.before_write = lambda: None
        api.secrets[LEAF]["metadata"]["resourceVersion"] = "99"

    api.before_write = interfere
    with pytest.raises(Conflict):
        await reconcile(installed)
    await reconcile(installed)
    await reconcile(installed)
    assert api.writes == [LEAF]


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
    found = problem_of(make(START), names=NAMES, now=START + moved)
    assert problem in found
    assert bool(problem) == bool(found)


async def test_a_certificate_from_a_clock_that_was_ahead_is_replaced(installed: Scene) -> None:
    ahead = START + timedelta(days=400)
    api = installed.api
    authority = api.data(CA)
    later = Clock()
    later.now = ahead
    del api.secrets[LEAF]
    await make_keeper(installed.client, clock=later).reconcile()
    assert problem_of(pair_of(api), names=NAMES, now=START)
    await reconcile(installed)
    assert (problem_of(pair_of(api), names=NAMES, now=START), api.data(CA)) == ("", authority)


def test_a_key_of_another_certificate_is_no_pair() -> None:
    one, other = make(START), make(START)
    for broken in (
        Pair(certificate=one.certificate, key=other.key, authority=one.authority),
        Pair(certificate=one.certificate, key=one.key, authority=other.authority),
        Pair(certificate=one.authority, key=one.key, authority=one.authority),
    ):
        with pytest.raises(PairError):
            facts_of(broken)


async def test_metrics_are_those_of_the_certificate_that_was_just_made(installed: Scene) -> None:
    """An alert on a certificate that was not renewed ends with its renewal."""
    installed.clock.now += RENEWED_AFTER
    metrics = Metrics()
    await reconcile(installed, metrics=metrics)
    labels = {"secret": LEAF}
    expiry = metrics.registry.get_sample_value("dovetail_certificate_expiry_timestamp_seconds", labels)
    writes = metrics.registry.get_sample_value("dovetail_certificate_writes_total", labels)
    assert (expiry, writes) == ((installed.clock.now + LIFETIME).timestamp(), 1)
