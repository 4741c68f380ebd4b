"""The files of a Secret, which follow it as they do in a pod."""

import base64
import stat
from pathlib import Path
from typing import Any

from dovetail.kube.client import Client
from dovetail_sandbox.installed import secret_volume
from tests.background import eventually, running
from tests.core.kube.api import Api, Stream, line, listing, make_object, refusal
from tests.core.kube.conftest import api, client

__all__ = ["api", "client"]

LIST = "GET /api/v1/namespaces/ns/secrets"
WATCH = "WATCH /api/v1/namespaces/ns/secrets"


def make_secret(*, version: int, uid: str = "", **files: str) -> dict[str, Any]:
    data = {name.replace("_", "."): base64.b64encode(text.encode()).decode() for name, text in files.items()}
    return make_object("trust", version=version, uid=uid, data=data)


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".")}


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def following(client: Client, folder: Path) -> Any:
    return running(secret_volume.follow(client, name="trust", namespace="ns", folder=folder))


async def test_the_files_follow_the_secret_by_one_watch(api: Api, client: Client, tmp_path: Path) -> None:
    api.answer(LIST, listing(make_secret(version=1, tls_crt="one", tls_key="1"), version=5))
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", make_secret(version=6, tls_crt="two", tls_key="2"))]))
    async with following(client, tmp_path):
        await eventually(lambda: files(tmp_path) == {"tls.crt": "two", "tls.key": "2"})
    assert modes(tmp_path) == {0o600}
    assert [seen.query["fieldSelector"] for seen in api.seen] == ["metadata.name=trust"] * 2


async def test_a_secret_that_is_not_there_yet_is_waited_for(api: Api, client: Client, tmp_path: Path) -> None:
    api.answer(LIST, listing(version=5))
    api.answer(WATCH, Stream(chunks=[line("ADDED", make_secret(version=6, tls_crt="one"))]))
    async with following(client, tmp_path):
        await eventually(lambda: files(tmp_path) == {"tls.crt": "one"})


async def test_files_that_cannot_be_written_are_tried_again_within_the_watch(
    api: Api, client: Client, tmp_path: Path
) -> None:
    api.answer(LIST, listing(make_secret(version=1, a="1", b="1"), version=5))
    api.answer(WATCH, Stream(chunks=[line("MODIFIED", make_secret(version=6, a="2", b="2"))]))
    (tmp_path / ".a.new").mkdir()
    async with following(client, tmp_path):
        await eventually(lambda: files(tmp_path) == {"b": "2"})
        (tmp_path / ".a.new").rmdir()
        await eventually(lambda: files(tmp_path) == {"a": "2", "b": "2"}, within_seconds=30)
    assert len(api.of(WATCH)) == 1


async def test_the_files_of_a_deleted_secret_stay_and_its_successor_writes_all_of_its_own(
    api: Api, client: Client, tmp_path: Path
) -> None:
    first, second = make_secret(version=1, a="1", b="1"), make_secret(version=7, uid="other", b="1", c="2")
    api.answer(LIST, listing(first, version=5), refusal(403), listing(second, version=8))
    api.answer(WATCH, Stream(chunks=[line("DELETED", first)], then="end"), refusal(410))
    async with following(client, tmp_path):
        await eventually(lambda: "c" in files(tmp_path))
    assert files(tmp_path) == {"a": "1", "b": "1", "c": "2"}
