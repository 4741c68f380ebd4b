"""The gateway of `dovetail console`: one person's, on this machine, with the rights of a kubeconfig."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import aiohttp
import pytest

from dovetail.config.errors import ConfigError
from dovetail.config.settings import Settings
from dovetail_cli import consoles
from dovetail_cli.ui.errors import CommandError, NoConnectionError
from dovetail_gateway import local
from dovetail_gateway.access.sessions import TICKET_SECONDS
from dovetail_gateway.routing.browser import CONSOLE_HEADER
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.served import Face

PAGE = {"Sec-Fetch-Site": "same-origin", CONSOLE_HEADER: "1"}


@asynccontextmanager
async def console(api: GatewayApiServer, *, port: int = 0) -> AsyncIterator[str]:
    """The address that the command prints; the gateway stops at the end."""
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        local.serve(
            api.connection, settings=Settings(), port=port, opened=opened.set_result, delayed=lambda _: None, stop=stop
        )
    )
    await asyncio.wait([serving, opened], return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    try:
        yield await opened
    finally:
        stop.set()
        with suppress(asyncio.CancelledError):
            await serving


async def test_the_printed_address_signs_one_browser_in_once_as_the_kubeconfigs_user(api: GatewayApiServer) -> None:
    # The connection of these tests has no credential, as one with a client certificate has no token.
    api.users[""] = User("me", {"*": EDIT})
    async with console(api) as address, aiohttp.ClientSession() as session:
        url = urlsplit(address)
        base, ticket = f"http://{url.netloc}", url.fragment.removeprefix("ticket=")
        assert (url.hostname, url.path) == ("127.0.0.1", "/console/")
        async with session.post(f"{base}/console/session", headers=PAGE, json={"ticket": ticket}) as said:
            assert (said.status, (await said.json())["signedIn"]) == (200, True)
            cookie = said.headers["Set-Cookie"].partition(";")[0]
        async with session.post(f"{base}/console/session", headers=PAGE, json={"ticket": ticket}) as said:
            assert said.status == 401
        # Without the cookie, nobody on this machine has the kubeconfig's rights.
        async with session.get(f"{base}/api/v3/me") as said:
            assert said.status == 401
        async with session.get(f"{base}/api/v3/me", headers={**PAGE, "Cookie": cookie}) as said:
            assert (await said.json())["username"] == "me"


async def test_a_port_that_is_taken_is_an_error_of_the_command_line(api: GatewayApiServer) -> None:
    async with console(api) as address:
        with pytest.raises(ConfigError):
            async with console(api, port=urlsplit(address).port or 0):
                pass


async def test_the_command_gets_an_address_at_a_gateway_for_the_token_of_the_kubeconfig(face: Face) -> None:
    address = await asyncio.to_thread(consoles.address, f"{face.url}/", token="red-token")
    base, _, ticket = address.partition("/console/#ticket=")
    assert (base, bool(ticket), "red-token" in address, TICKET_SECONDS) == (face.url, True, False, 600.0)
    said = await face.ask("POST", "/console/session", headers=PAGE, json={"ticket": ticket})
    assert said.status == 200


async def test_a_gateway_that_gives_no_address_is_one_sentence(face: Face, api: GatewayApiServer) -> None:
    with pytest.raises(NoConnectionError, match="does not accept your token"):
        await asyncio.to_thread(consoles.address, face.url, token="unknown-token")
    with pytest.raises(NoConnectionError, match=r"cannot reach the gateway at http://127\.0\.0\.1:1"):
        await asyncio.to_thread(consoles.address, "http://127.0.0.1:1", token="red-token")
    with pytest.raises(CommandError, match="it is no gateway with a console"):
        await asyncio.to_thread(consoles.address, f"{face.url}/api", token="red-token")
