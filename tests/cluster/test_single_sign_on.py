"""Signing in to the console at a real OpenID provider, whose ID token is a user of a real API server."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.async_api import Page, expect

from dovetail.api.resources import ROLEBINDINGS
from dovetail.kube.client import Client
from dovetail_gateway.console import build
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.processes import ports
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import reporter
from tests.authority import Authority
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.console import browser as browsers
from tests.console.browser import CHROMIUM, shows, until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")]
# Long enough to sign in and to look around on a busy machine, and short enough to be renewed and to end in a test.
ID_TOKEN_SECONDS = 20
PASSWORD = "verysecure"
USER = "oidc:rita"
RELOADED = "apiserver_authentication_config_controller_automatic_reloads_total{"


@dataclass(frozen=True)
class Place:
    """A gateway of its own at a provider of its own; `folder` has the provider's log and certificates."""

    url: str
    issuer: str
    folder: Path
    provider: subprocess.Popen[bytes]

    def renewals(self) -> int:
        """How often the provider's token endpoint was asked, the sign-in included."""
        return (self.folder / "provider.log").read_text().count("path=/oauth/token")


@pytest.fixture
def place(sandbox: Cluster, authentication: Path, tmp_path: Path) -> Iterator[Place]:
    """A provider with one user, and a gateway with the sandbox's account that is its client."""
    if "DOVETAIL_TEST_SANDBOX" in os.environ:
        pytest.skip("the API server of this sandbox has no authentication configuration")
    build.build()
    chosen = ports.choose(["gateway", "metrics", "provider"], taken=sandbox.state().ports.values())
    issuer, url = f"https://127.0.0.1:{chosen['provider']}", f"http://127.0.0.1:{chosen['gateway']}"
    authority = Authority()
    authority.sign("127.0.0.1").write(tmp_path, authority=authority.certificate)
    user = {"ID": "rita", "Username": "rita", "Password": PASSWORD, "Email": "rita@example.com", "EmailVerified": True}
    (tmp_path / "users.json").write_text(json.dumps({"rita": user}))
    (tmp_path / "secret").write_text("secret")
    provided = {
        "PORT": str(chosen["provider"]),
        "USERS_FILE": str(tmp_path / "users.json"),
        "REDIRECT_URI": f"{url}/console/callback",
        "TLS_FOLDER": str(tmp_path),
        "ID_TOKEN_SECONDS": str(ID_TOKEN_SECONDS),
    }
    program = locate.resolve(["oidc-provider"], report=reporter())["oidc-provider"]
    gateway = [
        str(Path(sys.executable).with_name("dovetail-gateway")), f"--port={chosen['gateway']}",
        f"--metrics-port={chosen['metrics']}", f"--public-url={url}", f"--oidc-issuer={issuer}", "--oidc-client-id=web",
        f"--oidc-client-secret-file={tmp_path / 'secret'}", f"--oidc-ca-file={tmp_path / 'ca.crt'}",
    ]  # fmt: skip
    account = {"KUBECONFIG": str(sandbox.folder / "kubeconfigs" / "gateway")}
    with (
        running([str(program)], env=provided, log=tmp_path / "provider.log") as provider,
        running(gateway, env=account, log=tmp_path / "gateway.log"),
    ):
        yield Place(url, issuer, tmp_path, provider)


@contextmanager
def running(command: list[str], *, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **env}, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
async def person(place: Place) -> AsyncIterator[browsers.Window]:
    """A browser that trusts the provider's certificate."""
    async with (
        browsers.chromium() as started,
        browsers.window(started, url=place.url, ignore_https_errors=True) as made,
    ):
        yield made


async def test_a_person_signs_in_acts_with_their_own_rights_and_stays_signed_in_until_the_provider_is_gone(
    sandbox: Cluster, authentication: Path, place: Place, person: browsers.Window, client: Client, jobs: Jobs
) -> None:
    await let_in(client, namespace=jobs.namespace)
    await jobs.submit("waits", gpu=64)
    await jobs.phase("Queued", "waits")
    await until_it_answers(person, place=place)
    page = await person.tab("jobs?search=waits")

    await page.get_by_role("button", name="Sign in at").click()
    await fill(page, password="wrong")
    await expect(page.get_by_label("Password")).to_have_value("")
    await fill(page)
    await shows(page, f"the API server does not accept the ID token of {place.issuer}")

    await trust(sandbox, authentication, place=place)
    await page.goto(f"{place.url}/console/jobs?search=waits")
    await sign_in(page)
    await shows(page, "live")
    await expect(page.get_by_role("link", name="waits")).to_be_visible()
    assert page.url == f"{place.url}/console/jobs?search=waits"
    await page.get_by_role("link", name="Settings", exact=True).click()
    await shows(page, USER)

    # The API server knows who holds the job, also with a renewed token.
    asked = place.renewals()
    await until(lambda: place.renewals() >= asked + 2)
    await page.goto(f"{place.url}/console/job/{jobs.namespace}/waits")
    await page.get_by_role("button", name="Hold", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Hold the job").click()
    await jobs.phase("Held", "waits")

    # A code that was used opens nothing, and no token is in anything that the browser has.
    stored = "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])"
    assert "eyJ" not in await page.evaluate(stored)
    assert [text for text in await person.all_received() if "eyJ" in text] == []

    place.provider.kill()
    place.provider.wait()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=(ID_TOKEN_SECONDS + 20) * 1000)
    await page.get_by_role("button", name="Sign in at").click()
    await shows(page, f"the provider {place.issuer} does not answer")


async def sign_in(page: Page) -> None:
    """Go to the provider, and sign in there."""
    await page.get_by_role("button", name="Sign in at").click()
    await fill(page)


async def fill(page: Page, *, password: str = PASSWORD) -> None:
    """Send the provider's form."""
    await page.get_by_label("Username").fill("rita")
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Login").click()


async def let_in(client: Client, *, namespace: str) -> None:
    """Bind the role `edit` in the namespace to the provider's user."""
    body = {
        "metadata": {"name": "rita"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    }
    await client.create(ROLEBINDINGS, body=body, as_type=dict[str, Any], namespace=namespace)


async def trust(sandbox: Cluster, authentication: Path, *, place: Place) -> None:
    """Let the API server accept the provider's tokens, and wait until it does."""
    before = await asyncio.to_thread(reloads, sandbox)
    await asyncio.to_thread(authentication.write_text, configuration(place))
    await until(lambda: reloads(sandbox) > before)


def configuration(place: Place) -> str:
    """An AuthenticationConfiguration as docs/console.md has it."""
    issuer = {"url": place.issuer, "audiences": ["web"], "certificateAuthority": (place.folder / "ca.crt").read_text()}
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{"issuer": issuer, "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}}}],
    }
    return yaml.safe_dump(document)


def reloads(sandbox: Cluster) -> int:
    """How often the API server has read its authentication configuration again with success."""
    kubectl = locate.resolve(["kubectl"], report=reporter())["kubectl"]
    command = [str(kubectl), f"--kubeconfig={sandbox.kubeconfig}", "get", "--raw=/metrics"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    counted = [line for line in text.splitlines() if line.startswith(RELOADED) and 'status="success"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in counted)


async def until_it_answers(person: browsers.Window, *, place: Place) -> None:
    """Wait until provider and gateway answer."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for url in (f"{place.issuer}/.well-known/openid-configuration", f"{place.url}/console/session"):
            while True:
                try:
                    if (await person.context.request.get(url)).ok:
                        break
                except Exception:  # noqa: BLE001 - it does not listen yet
                    await asyncio.sleep(0.1)
