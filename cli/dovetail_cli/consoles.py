"""Opens the live console of a gateway, or one on this machine."""

import asyncio
import signal
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dovetail.kube.auth.connection import load_connection
from dovetail_cli.ui.errors import CommandError, NoConnectionError, UsageError

# The port of the console on this machine; any free one where it is taken.
PORT: Final = 8088
_SECONDS: Final = 15


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

    connection = load_connection(Path(kubeconfig) if kubeconfig else None, context=context)
    logs.configure(level="warning", fmt="console")

    async def serve(at: int) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await local.serve(
            connection,
            settings=Settings(),
            port=at,
            opened=lambda url: _show(url, browser=browser, ends="It runs until Ctrl-C."),
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
    connection = load_connection(Path(kubeconfig) if kubeconfig else None, context=context)
    token = connection.read_token()
    if not token:
        raise CommandError(f"{connection.source} has no token for {url}: without --gateway, a gateway runs here")
    _show(address(url, token=token), browser=browser, ends="")


def address(url: str, *, token: str) -> str:
    """The address that signs one browser in at a gateway's console as the token's user.

    Raises `CommandError`.
    """
    import httpx2

    from dovetail.decoding import UnreadableError, decode
    from dovetail_gateway.console.doors import TICKET_PATH, NewTicket
    from dovetail_gateway.console.serve import PATH

    base = url.rstrip("/")
    try:
        answer = httpx2.post(
            f"{base}{TICKET_PATH}", headers={"Authorization": f"Bearer {token}"}, timeout=_SECONDS, content=b""
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NoConnectionError(f"cannot reach the gateway at {url}: {error}") from error
    if answer.status_code == 401:
        raise NoConnectionError(f"the gateway at {url} does not accept your token")
    try:
        ticket = decode(answer.content, as_type=NewTicket).ticket
    except UnreadableError as error:
        raise CommandError(f"{url} answers {answer.status_code}: it is no gateway with a console") from error
    return f"{base}{PATH}#ticket={ticket}"


def _show(url: str, *, browser: bool, ends: str) -> None:
    """Print the address, and open it where there is a browser."""
    print(f"Console: {url}", flush=True)
    said = "The address signs one browser in, within 10 minutes."
    print(f"{said} {ends}".strip(), file=sys.stderr, flush=True)
    if browser:
        webbrowser.open(url)
