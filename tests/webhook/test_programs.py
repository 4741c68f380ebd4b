"""The programs `dovetail-webhook`, `dovetail-certificates` and `dovetail-trust`: each setting reaches its part."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dovetail.config.settings import Settings
from dovetail.kube.errors import Unreachable
from dovetail.process import certificate as certificates
from dovetail_certificates import hook
from dovetail_certificates import main as certificates_main
from dovetail_certificates.checks import LOOK_SECONDS, Check
from dovetail_certificates.extender import Attached, ExtenderKeeper
from dovetail_certificates.keeper import Keeper, Target
from dovetail_certificates.pairs import PairError
from dovetail_certificates.secret_store import ForeignSecretError
from dovetail_webhook import main
from dovetail_webhook.handler import Reviewer
from tests import virtual_time
from tests.authority import Authority
from tests.background import eventually, free_ports
from tests.webhook.certificates import CA, LEAF, Api, Clock

SETTINGS = Settings(
    policy="Spread",
    delivery="NRI",
    mps_directory="/run/mps",
    gpujobs={"max_spec_bytes": 70_000, "max_array_bytes": 2_000_000},  # type: ignore[arg-type]
    gpu_resource={"xe": "gpu.intel.com/xe"},
)


class Webhook:
    """The program as the command runs it, in a folder of certificates; `reviewer` is what it answers with."""

    def __init__(self, folder: Path, *, authority: Authority) -> None:
        self.folder = folder
        self.authority = authority
        self.port, self.health = free_ports(count=2)
        self.stop = asyncio.Event()
        self.reviewers: list[Reviewer] = []

    def write_pair(self) -> bytes:
        self.authority.sign("127.0.0.1").write(self.folder, authority=self.authority.certificate)
        return (self.folder / "tls.crt").read_bytes()

    async def ready(self) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.health}/readyz"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return response.status, await response.text()

    async def served(self, *, client: Path | None = None) -> bytes:
        """The certificate of the server, whose answer to a request has come. Raises `OSError` if none comes."""
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        if client is not None:
            context.load_cert_chain(client / "tls.crt", client / "tls.key")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        try:
            found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.write(b"POST /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            if not (await reader.read()).startswith(b"HTTP/1.1 404"):
                raise ConnectionAbortedError
            return found
        finally:
            writer.transport.abort()

    async def listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@asynccontextmanager
async def webhook(folder: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Webhook]:
    made, application = Webhook(folder, authority=Authority()), main.application

    def watched(reviewer: Reviewer, **options: Any) -> Any:
        made.reviewers.append(reviewer)
        return application(reviewer, **options)

    monkeypatch.setattr(main, "application", watched)
    monkeypatch.setattr(certificates, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(certificates, "_LOOK_SECONDS", 0.02)
    where = [f"--certificates={folder}", "--host=127.0.0.1", f"--port={made.port}"]
    args = main._parser().parse_args([*where, f"--metrics-port={made.health}", "--metrics-host=127.0.0.1", *words])
    running = asyncio.ensure_future(main._serve(args, SETTINGS, made.stop))
    try:
        await eventually(lambda: bool(made.reviewers) or running.done())
        yield made
    finally:
        made.stop.set()
        async with asyncio.timeout(20):
            await running


async def answered(made: Webhook) -> tuple[int, str]:
    """What readiness says, once it is asked."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await made.ready()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.005)


async def test_the_webhook_reviews_by_the_release_s_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with webhook(tmp_path, monkeypatch=monkeypatch) as made:
        wanted = Reviewer(
            policy="Spread",
            vendors=SETTINGS.vendors,
            mps_directory="/run/mps",
            delivery="NRI",
            limits=SETTINGS.job_limits,
        )
        assert made.reviewers == [wanted]
        assert wanted != Reviewer(policy="Spread", vendors=Settings().vendors, mps_directory="/run/mps", delivery="NRI")


async def test_the_webhook_listens_once_there_is_a_certificate_and_serves_each_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with webhook(tmp_path, monkeypatch=monkeypatch) as made:
        status, said = await answered(made)
        assert (status, f"[-]certificate failed: {tmp_path} has none yet" in said) == (503, True)
        assert not await made.listens()
        for _ in range(2):
            written = ssl.PEM_cert_to_DER_cert(made.write_pair().decode())
            async with asyncio.timeout(20):
                while (await made.ready())[0] != 200 or await made.served() != written:  # noqa: ASYNC110 - it looks
                    await asyncio.sleep(0.005)
    assert not await made.listens()


async def test_a_webhook_that_is_stopped_before_it_has_a_certificate_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with webhook(tmp_path, monkeypatch=monkeypatch) as made:
        assert (await answered(made))[0] == 503


async def test_with_a_ca_of_clients_the_webhook_reviews_for_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with webhook(tmp_path, f"--client-ca={tmp_path / 'ca.crt'}", monkeypatch=monkeypatch) as made:
        made.write_pair()
        async with asyncio.timeout(20):
            while (await answered(made))[0] != 200:  # noqa: ASYNC110 - it looks
                await asyncio.sleep(0.005)
        assert await made.served(client=tmp_path)
        with pytest.raises(OSError):  # noqa: PT011 - TLS names the refusal in more than one way
            await made.served()


# --- dovetail-certificates -------------------------------------------------------------------------------------------

WEBHOOK = ["--secret=dovetail-webhook", "--name=a", "--name=127.0.0.1"]
EXTENDER = ["--extender-secret=dovetail-extender", "--extender-name=b", "--client-name=c", "--client-name=d"]


def targets(*words: str) -> tuple[Target | None, Attached | None]:
    return certificates_main.targets(certificates_main._parser().parse_args(words))


@pytest.mark.parametrize("namespace", [None, "gpu-system"])
def test_certificates_are_kept_for_what_the_options_name(
    namespace: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    if namespace is not None:
        monkeypatch.setenv("POD_NAMESPACE", namespace)
    own = namespace or "dovetail-system"
    target = Target(namespace=own, secret="dovetail-webhook", names=["a", "127.0.0.1"])
    attached = Attached(namespace=own, secret="dovetail-extender", names=["b"], client_names=["c", "d"])
    assert targets(*WEBHOOK) == (target, None)
    assert targets(*EXTENDER) == (None, attached)
    assert targets(*EXTENDER, *WEBHOOK) == (target, attached)
    assert attached.client_secret == "dovetail-extender-client"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (WEBHOOK, {"certificate": Keeper}),
        (EXTENDER, {"extender certificates": ExtenderKeeper}),
        ([*WEBHOOK, *EXTENDER], {"certificate": Keeper, "extender certificates": ExtenderKeeper}),
    ],
    ids=["the webhook's", "the extender's", "both"],
)
async def test_readiness_says_of_each_certificate_why_it_is_not_kept(
    words: list[str], kept: dict[str, type[Check]], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, problems = list[Check](), dict[type[Check], str]()
    runs = list[type[Check]]()

    async def looks(self: Check) -> None:
        checks.append(self)
        runs.append(type(self))
        await asyncio.Event().wait()

    monkeypatch.setattr(Check, "run", looks)
    (port,) = free_ports(count=1)
    args = certificates_main._parser().parse_args([*words, "--metrics-host=127.0.0.1", f"--metrics-port={port}"])
    stop = asyncio.Event()
    async with Api().running() as client:
        monkeypatch.setattr(certificates_main, "load_connection", lambda _path: client.connection)
        running = asyncio.ensure_future(certificates_main._serve(args, Settings(), stop))
        await eventually(lambda: len(runs) == len(kept))
        assert sorted(map(repr, runs)) == sorted(map(repr, kept.values()))
        for failing in [None, *kept.values()]:
            for each in checks:
                each.problem = problems[type(each)] = f"no {type(each).__name__}" if type(each) is failing else ""
            async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/readyz") as response:
                lines = (await response.text()).splitlines()[:-1]
            assert response.status == (200 if failing is None else 503)
            assert sorted(lines) == sorted(
                f"[-]{name} failed: {problems[kind]}" if problems[kind] else f"[+]{name} ok"
                for name, kind in kept.items()
            )
        stop.set()
        async with asyncio.timeout(20):
            await running


class Looks(Check):
    """A check with these ends: an error or None for each look."""

    def __init__(self, *ends: Exception | None) -> None:
        super().__init__(secret="s", look_seconds=LOOK_SECONDS)
        self.ends = list(ends)
        self.seen: list[tuple[float, str]] = []

    async def reconcile(self) -> None:
        self.seen.append((virtual_time.clock() - 1000, self.problem))
        if (end := self.ends.pop(0)) is not None:
            raise end


def test_a_check_looks_every_ten_seconds_whatever_became_of_the_last_look() -> None:
    looks = Looks(PairError("no key"), None, Unreachable("s", problem="reset"), ForeignSecretError("s"), None, None)

    async def scenario() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(55):
                await looks.run()

    virtual_time.run(scenario())
    assert [at for at, _ in looks.seen] == [0, 10, 20, 30, 40, 50]
    first, *problems = [problem for _, problem in looks.seen]
    assert first == "it has not looked yet"
    assert [bool(each) for each in problems] == [True, False, True, True, False]
    assert "no key" in problems[0]
    assert looks.problem == ""


# --- dovetail-trust --------------------------------------------------------------------------------------------------

TRUST = [f"--secret={LEAF}", "--mutating-webhook-configuration=dovetail", "--timeout=20"]


@pytest.mark.parametrize(("problem", "code"), [("", 0), ("no connection to the API server", 1)])
def test_the_hook_s_exit_code_says_whether_the_ca_is_published(
    problem: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(args: Any) -> str:
        assert (args.secret, args.configuration, args.timeout) == (LEAF, "dovetail", 20.0)
        return problem

    monkeypatch.setattr(hook, "_run", run)
    assert hook.main(TRUST) == code
    said = capsys.readouterr()
    assert (f"Failed: {problem}" in said.out + said.err) == bool(problem)


def test_the_hook_without_a_connection_is_an_error_of_the_command_line(tmp_path: Path) -> None:
    assert hook.main([*TRUST, f"--kubeconfig={tmp_path / 'none'}"]) == 2


async def test_a_secret_that_comes_first_is_told_to_be_in_the_way_of_the_hook_at_once() -> None:
    """It is no error that passes: the hook ends without another try."""
    api, clock = Api(), Clock()
    api.install()
    api.secrets[CA] = {"metadata": {"name": CA, "resourceVersion": "1"}, "type": "Opaque", "data": {}}
    async with api.running() as client:
        args = hook.parser().parse_args(TRUST)
        found = await hook.run(client, args=args, say=lambda _: None, now=clock, sleep=clock.sleep)
    assert "delete it" in found
    assert clock.slept == []
