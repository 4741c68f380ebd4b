"""Opens the live console of a gateway, or one on this machine.

The code that signs a browser in is shown in the terminal and is in a file that only its user can read. It is in no
address that is printed, and in no command line: every user of the machine can read those of running programs.
"""

import asyncio
import html
import os
import secrets
import signal
import sys
import time
import webbrowser
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dovetail_cli.cluster.connection import load
from dovetail_cli.ui.errors import CommandError, NoConnectionError, UsageError

# The port of the console on this machine; any free one where it is taken.
PORT: Final = 8088
_SECONDS: Final = 15
_OLD_SECONDS: Final = 600.0
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Dovetail</title>
<p><a href="{url}">Dovetail</a></p>
</html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a console is, and a code that signs one browser in there within `seconds`."""

    url: str
    code: str = field(repr=False)
    seconds: float


def prepare() -> str:
    """Build the console's files in a checkout.

    Returns why that failed, else an empty text.
    """
    from dovetail_gateway.console import build, serve

    if serve.folder() is not None:
        return ""
    print("Building the console, which takes some seconds the first time …", file=sys.stderr)
    try:
        build.build()
    except build.BuildError as error:
        return str(error)
    return ""


def open_local(*, kubeconfig: str | None, context: str | None, port: int | None, browser: bool) -> None:
    """Serve the console on this machine until Ctrl-C. Raises `CommandError`."""
    if find_spec("prometheus_client") is None:
        raise CommandError("this image has no gateway of its own: name a running one with --gateway")
    from dovetail import logs
    from dovetail.config.errors import ConfigError
    from dovetail.config.settings import Settings
    from dovetail_gateway import local
    from dovetail_gateway.access.codes import CODE_SECONDS

    connection = load(kubeconfig, context=context)
    logs.configure(level="warning", fmt="console")

    async def serve(at: int) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await local.serve(
            connection,
            settings=Settings(),
            port=at,
            opened=lambda url, code: show(
                Address(url=url, code=code, seconds=CODE_SECONDS), browser=browser, ends="It runs until Ctrl-C."
            ),
            delayed=lambda why: print(f"dovetail: the console waits for the cluster: {why}", file=sys.stderr),
            stop=stop,
        )

    try:
        asyncio.run(serve(PORT if port is None else port))
    except ConfigError as error:
        if port is not None:
            raise UsageError(f"--port {port}: {error}") from error
        asyncio.run(serve(0))


def open_at(url: str, *, kubeconfig: str | None, context: str | None, browser: bool) -> None:
    """Open the console of a running gateway, signed in with the kubeconfig's token.

    Raises `CommandError`, and `UsageError` for an address that is not of HTTP.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(
            f'--gateway "{url}": must begin with http:// or https://; write for example https://gpu.example'
        )
    connection = load(kubeconfig, context=context)
    token = connection.read_token()
    if not token:
        raise CommandError(f"{connection.source} has no token for {url}: without --gateway, a gateway runs here")
    show(address(url, token=token), browser=browser)


def address(url: str, *, token: str) -> Address:
    """The address of a gateway's console, with a code of the token's user.

    Raises `CommandError`.
    """
    import httpx2

    from dovetail.decoding import UnreadableError, decode
    from dovetail_gateway.console.doors import CODE_PATH, NewCode
    from dovetail_gateway.console.serve import PATH

    base = url.rstrip("/")
    try:
        answer = httpx2.post(
            f"{base}{CODE_PATH}", headers={"Authorization": f"Bearer {token}"}, timeout=_SECONDS, content=b""
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NoConnectionError(f"cannot reach the gateway at {url}: {error}") from error
    if answer.status_code == 401:
        raise NoConnectionError(f"the gateway at {url} does not accept your token")
    if answer.status_code == 429:
        raise CommandError(f"the gateway at {url} gives no code: too many were not used yet, so try again in 2 minutes")
    try:
        given = decode(answer.content, as_type=NewCode)
    except UnreadableError as error:
        raise CommandError(f"{url} answers {answer.status_code}: it is no gateway with a console") from error
    return Address(url=f"{base}{PATH}", code=given.code, seconds=given.seconds)


def show(found: Address, *, browser: bool, ends: str = "") -> None:
    """Print address and code, and lead a browser there if `browser`."""
    print(f"Console: {found.url}\nCode:    {found.code}", flush=True)
    said = f"Open the address and enter the code within {found.seconds / 60:.0f} minutes. It signs one browser in."
    print(f"{said} {ends}".strip(), file=sys.stderr, flush=True)
    if not browser:
        return
    try:
        page = _page_of(found)
    except OSError as error:
        print(f"dovetail: no browser is opened: {error}", file=sys.stderr)
        return
    webbrowser.open(page.as_uri())


def _page_of(found: Address) -> Path:
    """A page that leads to the console with the code, in a file that only its user can read."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail" / "sign-in"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for page in folder.glob("*.html"):
        with suppress(FileNotFoundError):
            # A browser that starts slowly may still have to read one; its code is of no use for longer.
            if time.time() - page.stat().st_mtime > _OLD_SECONDS:
                page.unlink()
    page = folder / f"{secrets.token_hex(16)}.html"
    with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(_PAGE.format(url=html.escape(f"{found.url}#code={found.code}")))
    return page
