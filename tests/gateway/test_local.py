"""The gateway of `dovetail console`: one person's, on this machine, with the rights of a kubeconfig."""

import asyncio
import os
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from dovetail.config.errors import ConfigError
from dovetail.config.settings import Settings
from dovetail_cli import consoles
from dovetail_cli.ui.errors import CommandError, NoConnectionError
from dovetail_gateway import local
from dovetail_gateway.access.codes import CODE_SECONDS
from dovetail_gateway.app import Options, gateway
from dovetail_gateway.routing.browser import CONSOLE_HEADER
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.served import Face

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: red-token}}]
"""
PAGE = {"Sec-Fetch-Site": "same-origin", CONSOLE_HEADER: "1"}


@asynccontextmanager
async def console(api: GatewayApiServer, *, port: int = 0) -> AsyncIterator[tuple[str, str]]:
    """The address and the code that the command shows; the gateway stops at the end."""
    stop, opened = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        local.serve(
            api.connection,
            settings=Settings(),
            port=port,
            opened=lambda url, code: opened.set_result((url, code)),
            delayed=lambda _: None,
            stop=stop,
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


async def test_the_code_signs_one_browser_in_once_as_the_kubeconfigs_user(api: GatewayApiServer) -> None:
    # The connection of these tests has no credential, as one with a client certificate has no token.
    api.users[""] = User("me", {"*": EDIT})
    async with console(api) as (address, code), aiohttp.ClientSession() as session:
        url = urlsplit(address)
        base = f"http://{url.netloc}"
        assert (url.hostname, url.path, url.fragment, url.query) == ("127.0.0.1", "/console/", "", "")
        async with session.post(f"{base}/console/arrivals", headers=PAGE, json={"code": code}) as said:
            assert (await said.json())["username"] == "me"
            browser = {**PAGE, "Cookie": said.headers["Set-Cookie"].partition(";")[0]}
        async with session.post(f"{base}/console/session", headers=browser, json={"code": code}) as said:
            assert (said.status, (await said.json())["signedIn"]) == (200, True)
            cookie = said.headers["Set-Cookie"].partition(";")[0]
        async with session.post(f"{base}/console/session", headers=browser, json={"code": code}) as said:
            assert said.status == 401
        # Without the cookie, no other user of this machine has the kubeconfig's rights.
        async with session.get(f"{base}/api/v3/me") as said:
            assert said.status == 401
        async with session.get(f"{base}/api/v3/me", headers={**PAGE, "Cookie": cookie}) as said:
            assert (await said.json())["username"] == "me"


async def test_a_port_that_is_taken_is_an_error_of_the_command_line(api: GatewayApiServer) -> None:
    async with console(api) as (address, _):
        with pytest.raises(ConfigError):
            async with console(api, port=urlsplit(address).port or 0):
                pass


async def test_the_command_gets_a_code_at_a_gateway_for_the_token_of_the_kubeconfig(face: Face) -> None:
    found = await asyncio.to_thread(consoles.address, f"{face.url}/", token="red-token")
    assert (found.url, found.seconds) == (f"{face.url}/console/", CODE_SECONDS)
    assert found.code not in repr(found)
    said = await face.ask("POST", "/console/arrivals", headers=PAGE, json={"code": found.code})
    assert said.json["username"] == "rita"


async def test_too_many_codes_that_were_not_used_are_one_sentence(face: Face) -> None:
    for _ in range(8):
        await asyncio.to_thread(consoles.address, face.url, token="red-token")
    with pytest.raises(CommandError, match="too many were not used yet, so try again in 2 minutes"):
        await asyncio.to_thread(consoles.address, face.url, token="red-token")


async def test_a_gateway_that_gives_no_address_is_one_sentence(face: Face, api: GatewayApiServer) -> None:
    with pytest.raises(NoConnectionError, match="does not accept your token"):
        await asyncio.to_thread(consoles.address, face.url, token="unknown-token")
    with pytest.raises(NoConnectionError, match=r"cannot reach the gateway at http://127\.0\.0\.1:1"):
        await asyncio.to_thread(consoles.address, "http://127.0.0.1:1", token="red-token")
    with pytest.raises(CommandError, match="it is no gateway with a console"):
        await asyncio.to_thread(consoles.address, f"{face.url}/api", token="red-token")


# Prints every word of every process that this user can read, and of the files that they name.
WATCHER = r"""
import os, pathlib, sys
# Only now, because another user cannot read the files of a Python in root's home.
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.stdin.readline()
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        continue
    for word in words:
        print(word.decode(errors="replace"))
        if word.startswith(b"file://"):
            try:
                print(pathlib.Path(word.decode().removeprefix("file://")).read_text())
            except OSError:
                pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's processes can be started by root alone")
async def test_another_user_of_the_machine_finds_no_word_that_signs_in(face: Face, tmp_path: Path) -> None:
    begun, done = tmp_path / "begun", tmp_path / "done"
    os.mkfifo(begun)
    os.mkfifo(done)
    browser = tmp_path / "browser"
    # Slow to load: it reads the page only once the other user has looked.
    browser.write_text(f'#!/bin/sh\necho "$1" >{begun}\nread -r _ <{done}\n')
    browser.chmod(0o755)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    words = [sys.executable, "-m", "dovetail_cli", "console", "--gateway", face.url, "--kubeconfig", str(kubeconfig)]
    environment = {**os.environ, "BROWSER": str(browser), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    watcher = await asyncio.create_subprocess_exec(sys.executable, "-c", WATCHER, stdin=PIPE, stdout=PIPE)
    command = await asyncio.create_subprocess_exec(*words, env=environment, stdout=PIPE)
    opened = await asyncio.to_thread(begun.read_text)
    seen = (await watcher.communicate(b"\n"))[0].decode()
    await asyncio.to_thread(done.write_text, "\n")
    printed = (await command.communicate())[0].decode()
    assert opened.strip() in seen, "the browser's command line is everybody's"
    for word in {word for word in re.findall(r"[\w-]+", seen) if 10 <= len(word) <= 48}:
        said = await face.ask("POST", "/console/arrivals", headers=PAGE, json={"code": word})
        assert said.status == 401, word
    # What the owner's browser reads does sign in.
    page = Path(urlsplit(opened.strip()).path)
    assert [(path.stat().st_mode & 0o777) for path in (page, page.parent)] == [0o600, 0o700]
    code = re.search(r"#code=([0-9A-Z-]+)", await asyncio.to_thread(page.read_text))
    assert code is not None
    assert code[1] in printed
    assert (await face.ask("POST", "/console/arrivals", headers=PAGE, json={"code": code[1]})).status == 200


def test_files_of_earlier_sign_ins_go_and_the_folder_is_its_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    opened: list[str] = []
    monkeypatch.setattr(consoles.webbrowser, "open", opened.append)
    folder = tmp_path / "dovetail" / "sign-in"
    folder.mkdir(parents=True, mode=0o755)
    for name, age in (("old", 3600), ("new", 1)):
        (folder / f"{name}.html").touch()
        os.utime(folder / f"{name}.html", (time.time() - age,) * 2)
    consoles.show(consoles.Address(url='http://x/"><script>', code="7KXQ2-M4TPD", seconds=120.0), browser=True)
    (page,) = [Path(urlsplit(url).path) for url in opened]
    assert {each.name for each in folder.iterdir()} == {"new.html", page.name}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "<script>" not in page.read_text()


def test_a_browser_that_cannot_be_led_is_one_sentence_and_the_code_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    consoles.show(consoles.Address(url="http://x/console/", code="7KXQ2-M4TPD", seconds=120.0), browser=True)
    said = capsys.readouterr()
    assert said.out == "Console: http://x/console/\nCode:    7KXQ2-M4TPD\n"
    assert "dovetail: no browser is opened: " in said.err


@pytest.mark.parametrize("listed", [True, False])
async def test_a_cluster_that_is_not_listed_after_a_while_is_told_with_what_is_missing(
    api: GatewayApiServer, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    async with gateway(api.connection, settings=Settings(), options=Options()) as made:
        if listed:
            monkeypatch.setattr(made.cache, "complete", lambda: asyncio.sleep(0))
        else:
            monkeypatch.setattr(local, "_PATIENCE_SECONDS", 0.001)
        await local._watch(made, delayed=said.append)
        obstacle = made.cache.obstacle
    assert said == ([] if listed else [obstacle])
    assert "not listed yet: nodes" in obstacle


async def test_the_console_of_one_machine_answers_by_the_settings_that_it_is_given(
    api: GatewayApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, asked = Settings(topology_levels=["rack=row"]), list[Any]()

    def watched(connection: Any, **options: Any) -> Any:
        asked.append((connection, options["settings"], options["options"]))
        return gateway(connection, **options)

    monkeypatch.setattr(local, "gateway", watched)
    stop = asyncio.Event()
    await local.serve(
        api.connection,
        settings=given,
        port=0,
        opened=lambda *_: stop.set(),
        delayed=lambda _: None,
        stop=stop,
    )
    assert asked == [(api.connection, given, Options())]
