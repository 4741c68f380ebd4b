"""`dovetail-trust`: the CA of the webhook's certificate, and what API servers trust at each moment."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.process import serving
from dovetail.process.certificate import Certificate
from dovetail_certificates import hook
from dovetail_certificates.pairs import LIFETIME, Authority, Pair, authorities_in, facts_of, make_authority, problem_of
from dovetail_certificates.publication import OVERLAP, SEEN_AFTER, plan_authority, plan_bundle
from dovetail_certificates.signing import CA_LIFETIME, Authorities, Side, plan_pair
from tests.faults import at_each_await
from tests.webhook.certificates import CA, LEAF, NAMES, START, Api, Clock, Scene, install, make_keeper, run_hook

RENEWED_AFTER = CA_LIFETIME * 2 / 3


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A cluster where nothing is installed."""
    api = Api(clock := Clock())
    async with api.running() as client:
        yield Scene(api, client, clock)


@pytest.fixture
async def installed(scene: Scene) -> Scene:
    """An installed release that serves its first certificate."""
    api, client, clock = scene
    await install(client, api=api, clock=clock)
    api.writes.clear()
    clock.slept.clear()
    return scene


async def test_an_installation_makes_one_ca_and_publishes_it_once_the_configuration_exists(scene: Scene) -> None:
    api, client, clock = scene
    await install(client, api=api, clock=clock)
    assert api.writes == [CA, "hooks", LEAF]
    assert api.bundle == api.data(CA)["ca.crt"] == api.data(LEAF)["ca.crt"]
    assert set(api.data(CA)) == {"ca.crt", "ca.key"}
    assert api.secrets[CA]["type"] == "Opaque"
    assert not clock.slept


async def test_an_upgrade_changes_nothing_while_the_ca_is_young(installed: Scene) -> None:
    api, client, clock = installed
    clock.now += RENEWED_AFTER - timedelta(days=1)
    assert await run_hook(client, clock=clock) == ("", [f"The CA in Secret {CA} is valid."])
    assert api.writes == []


@pytest.mark.parametrize("cause", ["old", "deleted", "broken", "key of another"])
async def test_a_new_ca_is_published_before_it_signs_and_the_old_one_stays_meanwhile(
    installed: Scene, cause: str
) -> None:
    api, client, clock = installed
    old = api.data(CA)["ca.crt"]
    if cause == "old":
        clock.now += RENEWED_AFTER
    elif cause == "deleted":
        del api.secrets[CA]
    else:
        other = make_authority(now=START, lifetime=CA_LIFETIME)
        api.put(CA, api.data(CA) | {"ca.key": other.key if cause == "key of another" else b"nonsense"})
    assert (await run_hook(client, clock=clock))[0] == ""
    new = api.data(CA)["ca.crt"]
    assert api.writes == ["hooks", CA]
    assert clock.slept == [SEEN_AFTER.total_seconds()]
    assert api.bundle == new + old


async def test_the_old_ca_is_trusted_until_every_webhook_serves_the_new_one_s_certificate(installed: Scene) -> None:
    api, client, clock = installed
    old = api.data(CA)["ca.crt"]
    clock.now += RENEWED_AFTER
    await run_hook(client, clock=clock)
    clock.now += OVERLAP * 2
    await run_hook(client, clock=clock)  # dovetail-certificates is down: the old certificate is served
    assert old in api.bundle
    await make_keeper(client, clock=clock).reconcile()
    clock.now += OVERLAP - timedelta(seconds=1)
    await run_hook(client, clock=clock)
    assert old in api.bundle
    clock.now += timedelta(seconds=1)
    await run_hook(client, clock=clock)
    assert api.bundle == api.data(CA)["ca.crt"]


async def test_a_release_whose_certificate_had_a_ca_of_its_own_is_taken_over(scene: Scene) -> None:
    api, client, clock = scene
    earlier = make_authority(now=START - timedelta(days=1), lifetime=LIFETIME)
    api.install()
    api.bundle = earlier.certificate
    await run_hook(client, clock=clock)
    assert api.bundle == api.data(CA)["ca.crt"] + earlier.certificate


async def test_a_ca_that_was_taken_out_of_a_webhook_comes_back(installed: Scene) -> None:
    api, client, clock = installed
    assert api.hooks is not None
    del api.hooks["webhooks"][0]["clientConfig"]["caBundle"]
    await run_hook(client, clock=clock)
    assert api.bundle == api.data(CA)["ca.crt"]


@pytest.mark.parametrize("name", [CA, LEAF])
async def test_another_s_secret_of_that_name_is_never_overwritten(scene: Scene, name: str) -> None:
    api, client, clock = scene
    api.secrets[name] = {"metadata": {"name": name, "resourceVersion": "7"}, "type": "Opaque", "data": {}}
    problem, _ = await run_hook(client, clock=clock)
    assert problem.startswith(f"Secret {name} was not made by dovetail-certificates: delete it")
    assert api.writes == []


async def test_an_account_whose_roles_come_a_moment_later_tries_again(scene: Scene) -> None:
    api, client, clock = scene
    api.refuses = 3
    assert (await run_hook(client, clock=clock))[0] == ""
    assert clock.slept == [hook.RETRY_SECONDS] * 3


async def test_what_never_succeeds_ends_with_the_last_error(scene: Scene) -> None:
    api, client, clock = scene
    api.refuses = 10**9
    problem, _ = await run_hook(client, clock=clock, seconds=0.2)
    assert "403" in problem or "no" in problem
    assert api.writes == []


def test_no_bundle_grows_beyond_sixteen_whatever_is_found_in_it() -> None:
    found = b"".join(made(START - timedelta(minutes=each)).certificate for each in range(20))
    bundle = plan_bundle(made(START), published=found, served={}, now=START)
    assert len(authorities_in(bundle, now=START)) == 16


def test_a_stranger_s_certificate_does_not_stay_trusted() -> None:
    (stranger, _) = plan_pair({}, authorities=Authorities(current=made(START)), side=Side.server(NAMES), now=START)
    assert stranger["tls.crt"] not in plan_bundle(made(START), published=stranger["tls.crt"], served={}, now=START)


def made(at: datetime) -> Authority:
    return make_authority(now=at, lifetime=CA_LIFETIME)


STEPS = ["upgrade", "check", "a minute", "two hours", "70 days", "6 years", "no CA", "no certificate"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=14))
def test_what_a_webhook_serves_is_trusted_whatever_happens_in_whatever_order(steps: list[str]) -> None:
    """Time passes between the steps only where one says so; the webhook has a new certificate two minutes later."""
    model = Model()
    for step in steps:
        model.take(step)
        assert model.is_trusted or not model.is_valid, steps


class Model:
    """Two Secrets, what is published, and what the webhook serves: changed by the planners alone."""

    def __init__(self) -> None:
        self.now = START
        self.ca: dict[str, bytes] = {}
        self.leaf: dict[str, bytes] = {}
        self.bundle = b""
        self.served: dict[str, bytes] = {}
        for step in ("upgrade", "check", "two hours"):
            self.take(step)

    def take(self, step: str) -> None:
        """Change what the step changes."""
        if step == "upgrade":
            authority, _ = plan_authority(self.ca, now=self.now)
            self.bundle = plan_bundle(authority, published=self.bundle, served=self.leaf, now=self.now)
            self.ca = Authorities(current=authority).data()
        elif step == "check" and self.ca:
            self._check()
        elif step == "no CA":
            self.ca = {}
        elif step == "no certificate":
            self.leaf = {}
        else:
            self._pass(step)

    def _check(self) -> None:
        """As the keeper: a CA whose time is over signs nothing."""
        authorities = Authorities.from_secret(self.ca)
        if plan_authority(self.ca, now=self.now)[1] in {"", "two thirds of the CA's life are over"}:
            self.leaf, _ = plan_pair(self.leaf, authorities=authorities, side=Side.server(NAMES), now=self.now)

    def _pass(self, step: str) -> None:
        spans = {"a minute": (0, 1), "two hours": (0, 120), "70 days": (70, 0), "6 years": (2190, 0)}
        days, minutes = spans.get(step, (0, 0))
        self.now += timedelta(days=days, minutes=minutes)
        if (days, minutes) > (0, 1) and self.leaf:
            self.served = self.leaf

    @property
    def is_valid(self) -> bool:
        """Whether neither what is served nor its CA has ended: nobody has looked after them for months."""
        signer = self.served["ca.crt"]
        pair = Pair(certificate=self.served["tls.crt"], key=self.served["tls.key"], authority=signer)
        return self.now < facts_of(pair).valid_until and bool(authorities_in(signer, now=self.now))

    @property
    def is_trusted(self) -> bool:
        """Whether an API server accepts what is served."""
        certificate, key = self.served["tls.crt"], self.served["tls.key"]
        trusted = authorities_in(self.bundle, now=self.now)
        pairs = [Pair(certificate=certificate, key=key, authority=each) for each in trusted]
        return any(problem_of(each, names=NAMES, now=self.now) == "" for each in pairs)


async def test_no_handshake_fails_while_ca_and_certificate_are_replaced(tmp_path: Path) -> None:
    """API servers may trust what was published before a step; the webhook reads its files later than they change."""
    api = Api(clock := Clock())
    clock.now = datetime.now(UTC)
    async with api.running() as client:
        await install(client, api=api, clock=clock)
        mount(api, tmp_path)
        certificate = Certificate(tmp_path)
        served = set()
        async with serving.listening(web.Application(), host="127.0.0.1", port=0, tls=certificate.context) as port:
            for step in (
                "upgrade",
                "no CA",
                "upgrade",
                "check",
                "mount",
                "no certificate",
                "check",
                "mount",
                "upgrade",
            ):
                seen = api.bundle
                if step == "upgrade":
                    await run_hook(client, clock=clock)
                elif step == "check":
                    await make_keeper(client, clock=clock).reconcile()
                elif step == "mount":
                    mount(api, tmp_path)
                    certificate.refresh()
                else:
                    del api.secrets[CA if step == "no CA" else LEAF]
                for bundle in (seen, api.bundle):
                    served.add(await handshake(port, trusted=bundle))
    assert len(served) == 3


def mount(api: Api, folder: Path) -> None:
    for name in ("tls.key", "tls.crt"):
        (folder / name).write_bytes(api.data(LEAF)[name])


async def handshake(port: int, *, trusted: bytes) -> bytes:
    """The certificate that a client accepts which trusts these CAs alone."""
    context = ssl.create_default_context(cadata=trusted.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


@pytest.mark.parametrize("late", [timedelta(0), RENEWED_AFTER], ids=["an installation", "an upgrade with an old CA"])
async def test_a_hook_that_is_cancelled_at_any_await_can_be_run_again(late: timedelta) -> None:
    """What is stored and what is served is trusted at each moment, and after the next run."""
    async with AsyncExitStack() as stack:

        async def make() -> Scene:
            api = Api(clock := Clock())
            client = await stack.enter_async_context(api.running())
            if late:
                await install(client, api=api, clock=clock)
                clock.now += late
            else:
                api.install()
            return Scene(api, client, clock)

        async def journey(scene: Scene) -> None:
            assert (await run_hook(scene.client, clock=scene.clock))[0] == ""

        def safe(scene: Scene) -> None:
            for name in scene.api.secrets:
                assert scene.api.data(name)["ca.crt"] in scene.api.bundle, f"{name} is not trusted"

        # A CA that the hook made before it was cancelled may stay trusted, in addition to the one in force.
        async def end(scene: Scene) -> object:
            safe(scene)
            return sorted(scene.api.secrets), bool(scene.api.bundle)

        points = await at_each_await(make, journey=journey, end=end, safe=safe)
        assert points > 3


def test_the_page_of_the_installation_has_the_times_of_the_code() -> None:
    text = " ".join((Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8").split())
    lives, renewed = LIFETIME.days, (LIFETIME * 2 / 3).days
    assert f"A certificate is valid for {lives} days and replaced after {renewed}." in text
    assert (CA_LIFETIME.days, "The CA is valid for ten years." in text) == (3650, True)
    assert f"This takes {SEEN_AFTER.seconds} s longer than other upgrades" in text
    assert (OVERLAP, "until you run `helm upgrade` again, an hour or more later" in text) == (timedelta(hours=1), True)
