"""The objects that hold certificates and CAs, on loopback with the API server's rules, and the time."""

import base64
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from aiohttp import web

from dovetail import names
from dovetail.kube.client import Client
from dovetail_certificates import hook
from dovetail_certificates.keeper import Keeper, Target
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.publication import SEEN_AFTER
from tests.loopback import client_of

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
NAMES: Final = ("dovetail-webhook.dovetail-system.svc", "127.0.0.1")
LEAF, CA = "dovetail-webhook", "dovetail-webhook-ca"
_SECRETS: Final = "/api/v1/namespaces/dovetail-system/secrets/{name}"
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/dovetail"


class Clock:
    """The time, and a `sleep` that only advances it."""

    def __init__(self) -> None:
        self.now = START
        self.slept: list[float] = []

    def __call__(self) -> datetime:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)


class Api:
    """Secrets and a webhook configuration; a write with an old resourceVersion is a conflict.

    With a clock, no CA may be stored that API servers have not trusted for a while, because what is stored signs.
    """

    def __init__(self, clock: "Clock | None" = None) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        # None: it is not installed.
        self.hooks: dict[str, Any] | None = None
        self.writes: list[str] = []
        self.refuses = 0
        # Secrets with a field that another manager owns, such as that of `kubectl edit`.
        self.edited: set[str] = set()
        self.before_write: Callable[[], None] = lambda: None
        self._versions = itertools.count(2)
        self._clock = clock
        # The bundles of all time, the last one last.
        self._bundles: list[tuple[datetime, bytes]] = []

    def running(self) -> AbstractAsyncContextManager[Client]:
        return client_of([
            web.get(_SECRETS, self._read_secret),
            web.patch(_SECRETS, self._apply_secret),
            web.get(_HOOKS, self._read_hooks),
            web.patch(_HOOKS, self._patch_hooks),
        ])  # fmt: skip

    def install(self) -> None:
        """Create the webhook configuration, as Helm does between two runs of the hook."""
        hooks = ("pods.dovetail.dev", "gpujobs.dovetail.dev")
        self.hooks = {
            "metadata": {"name": "dovetail", "resourceVersion": "1"},
            "webhooks": [{"name": name, "clientConfig": {"url": "https://127.0.0.1/mutate"}} for name in hooks],
        }

    def data(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(text) for key, text in self.secrets[name]["data"].items()}

    def put(self, name: str, data: dict[str, bytes]) -> None:
        """Overwrite what a Secret contains."""
        self.secrets[name]["data"] = {key: base64.b64encode(text).decode() for key, text in data.items()}

    @property
    def bundle(self) -> bytes:
        assert self.hooks is not None
        (bundle,) = {each["clientConfig"].get("caBundle", "") for each in self.hooks["webhooks"]}
        return base64.b64decode(bundle)

    @bundle.setter
    def bundle(self, bundle: bytes) -> None:
        assert self.hooks is not None
        for each in self.hooks["webhooks"]:
            each["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        self._note_bundle()

    def _note_bundle(self) -> None:
        if self._clock is not None:
            self._bundles.append((self._clock(), self.bundle))

    def _check_signer(self, signer: bytes) -> None:
        """Assert that API servers which trust anything have had the time to see this CA before it signs."""
        bundles = [each for each in self._bundles if each[1]]
        if self._clock is None or not bundles or signer in bundles[0][1]:
            return
        since = next((at for at, bundle in bundles if signer in bundle), None)
        assert since is not None, "a CA is stored that is not published"
        waited = self._clock() - since
        assert waited >= SEEN_AFTER, f"a CA is stored {waited} after it was published"

    async def _read_secret(self, request: web.Request) -> web.Response:
        if self.refuses:
            self.refuses -= 1
            return _status(403)
        found = self.secrets.get(request.match_info["name"])
        return _status(404) if found is None else web.json_response(found)

    async def _apply_secret(self, request: web.Request) -> web.Response:
        assert request.query["fieldManager"] == names.CERTIFICATES_MANAGER
        body, name = await request.json(), request.match_info["name"]
        self.before_write()
        if name in self.edited and request.query["force"] != "true":
            return _status(409)
        version, found = body["metadata"].get("resourceVersion"), self.secrets.get(name)
        if version and (found is None or version != found["metadata"]["resourceVersion"]):
            return _status(409)
        if name == CA:
            self._check_signer(base64.b64decode(body["data"]["ca.crt"]))
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self.secrets[name] = body
        self.writes.append(name)
        return web.json_response(body)

    async def _read_hooks(self, _request: web.Request) -> web.Response:
        return _status(404) if self.hooks is None else web.json_response(self.hooks)

    async def _patch_hooks(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert self.hooks is not None
        if body["metadata"]["resourceVersion"] != self.hooks["metadata"]["resourceVersion"]:
            return _status(409)
        for change in body["webhooks"]:
            (found,) = [each for each in self.hooks["webhooks"] if each["name"] == change["name"]]
            found["clientConfig"] |= change["clientConfig"]
        self.hooks["metadata"]["resourceVersion"] = str(next(self._versions))
        self._note_bundle()
        self.writes.append("hooks")
        return web.json_response(self.hooks)


class Scene(NamedTuple):
    """An API server, a client of it, and the time."""

    api: Api
    client: Client
    clock: Clock


def _status(code: int) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)


def make_keeper(
    client: Client,
    *,
    clock: Clock,
    names: Sequence[str] = NAMES,
    look_seconds: float = 10.0,
    metrics: Metrics | None = None,
) -> Keeper:
    """What `dovetail-certificates` runs for the webhook."""
    target = Target(namespace="dovetail-system", secret=LEAF, names=names)
    return Keeper.of_webhook(client, target=target, metrics=metrics or Metrics(), now=clock, look_seconds=look_seconds)


async def run_hook(client: Client, *, clock: Clock, seconds: float = 100.0) -> tuple[str, list[str]]:
    """Run `dovetail-trust` as the chart does: its error, empty for none, and what it said."""
    options = [f"--secret={LEAF}", "--mutating-webhook-configuration=dovetail"]
    args = hook.parser().parse_args([*options, f"--timeout={seconds}"])
    said: list[str] = []
    problem = await hook.run(client, args=args, say=said.append, now=clock, sleep=clock.sleep)
    return problem, said


async def install(client: Client, *, api: Api, clock: Clock) -> None:
    """Install the release: the hook, what the chart creates, the hook again, and the first certificate."""
    assert (await run_hook(client, clock=clock))[0] == ""
    api.install()
    assert (await run_hook(client, clock=clock))[0] == ""
    await make_keeper(client, clock=clock).reconcile()
