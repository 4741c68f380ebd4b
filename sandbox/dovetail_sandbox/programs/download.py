"""Downloads official releases and verifies each by a published SHA-256.

The project publishes the digest, or GitHub computed it at the upload.
"""

import hashlib
import http.client
import io
import re
import tarfile
import threading
import urllib.error
import urllib.request
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from dovetail.decoding import decode
from dovetail_sandbox.errors import DownloadError, UnreachableError
from dovetail_sandbox.programs.catalog import Tool

CONNECT_SECONDS: Final = 4.0
_READ_SECONDS: Final = 30.0
# Some hosts reject a request without a user agent, or with Python's default one.
_HEADERS: Final = {"User-Agent": "dovetail-sandbox"}
_SHA256: Final = re.compile(r"\b[0-9a-fA-F]{64}\b")


class Asset(msgspec.Struct, frozen=True):
    """A file of a release, as GitHub's API describes it."""

    name: str
    digest: str | None = None  # `sha256:…`; null for files from before June 2025


class Release(msgspec.Struct, frozen=True):
    """A release, as GitHub's API answers `GET /repos/{owner}/{repository}/releases/tags/{tag}`."""

    assets: tuple[Asset, ...] = ()


def fetch(tool: Tool, *, target: Path, first_answer_seconds: float = CONNECT_SECONDS) -> None:
    """Write the program of a release to `target`.

    Raises `DownloadError`, quickly without a network.
    """
    file = PurePosixPath(tool.release).name
    published = _first_answer(tool.digests or tool.checksum, seconds=first_answer_seconds)
    checksum = asset_digest(published, file=file) if tool.digests else published_checksum(published, file=file)
    payload = _get(tool.release, seconds=_READ_SECONDS)
    found = hashlib.sha256(payload).hexdigest()
    if found != checksum:
        raise DownloadError(f"{tool.release} has SHA-256 {found}, but {checksum} is published for it")
    target.write_bytes(_member(payload, name=tool.member) if tool.member else payload)
    target.chmod(0o755)


def published_checksum(published: bytes, *, file: str) -> str:
    """Return the SHA-256 of `file` from a published text: its line, or the only line.

    Raises `DownloadError`.
    """
    lines = [line for line in published.decode(errors="replace").splitlines() if _SHA256.search(line)]
    named = [line for line in lines if file in line.replace("*", " ").split()]
    chosen = named or (lines if len(lines) == 1 else [])
    if not chosen:
        raise DownloadError(f"no SHA-256 for {file} is published")
    match = _SHA256.search(chosen[0])
    assert match, "lines without one are left out above"
    return match[0].lower()


def asset_digest(answer: bytes, *, file: str) -> str:
    """Return the SHA-256 of `file` from the answer of GitHub's API. Raises `DownloadError`."""
    try:
        assets = decode(answer, as_type=Release).assets
    except ValueError as error:
        raise DownloadError(f"the answer about the release of {file} cannot be read: {error}") from error
    digest = next((asset.digest or "" for asset in assets if asset.name == file), "")
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or not _SHA256.fullmatch(value):
        raise DownloadError(f"no SHA-256 for {file} is published")
    return value.lower()


def _first_answer(url: str, *, seconds: float) -> bytes:
    """Send the first request to a host with a limit on everything, including name resolution.

    Raises `DownloadError`.
    """
    answers: list[bytes | DownloadError] = []

    def ask() -> None:
        try:
            answers.append(_get(url, seconds=seconds))
        except DownloadError as error:
            answers.append(error)

    # A daemon thread: one that hangs in name resolution must not keep the program from ending.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds + 1)
    answer = answers[0] if answers else UnreachableError(f"{url} does not answer within {seconds:g} s")
    if isinstance(answer, DownloadError):
        raise answer
    return answer


def _get(url: str, *, seconds: float) -> bytes:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=_HEADERS), timeout=seconds) as response:
            return bytes(response.read())
    except urllib.error.HTTPError as error:
        # The error is also the open response.
        with error:
            raise DownloadError(f"{url}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"{url}: {error}") from error


def _member(payload: bytes, *, name: str) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(payload)) as archive:
            file = archive.extractfile(name)
            if file is not None:
                return file.read()
    except (tarfile.TarError, KeyError) as error:
        raise DownloadError(f"the release's archive has no {name}: {error}") from error
    raise DownloadError(f"in the release's archive {name} is not a file")
