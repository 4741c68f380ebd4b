"""Official releases, each verified by the checksum that its project publishes beside it."""

import hashlib
import io
import re
import tarfile
import threading
import urllib.request
from pathlib import Path, PurePosixPath
from typing import Final

from dovetail_sandbox.errors import DownloadError
from dovetail_sandbox.programs.catalog import Tool

CONNECT_SECONDS: Final = 4.0
_READ_SECONDS: Final = 30.0
_SHA256: Final = re.compile(r"\b[0-9a-fA-F]{64}\b")


def fetch(tool: Tool, *, target: Path, first_answer_seconds: float = CONNECT_SECONDS) -> None:
    """Writes the program of a release to `target`. Raises `DownloadError`, quickly where there is no network."""
    checksum = published_checksum(
        _first_answer(tool.checksum, seconds=first_answer_seconds).decode(), file=PurePosixPath(tool.release).name
    )
    payload = _get(tool.release, seconds=_READ_SECONDS)
    found = hashlib.sha256(payload).hexdigest()
    if found != checksum:
        raise DownloadError(f"{tool.release} has SHA-256 {found}, but {checksum} is published for it")
    target.write_bytes(_member(payload, name=tool.member) if tool.member else payload)
    target.chmod(0o755)


def published_checksum(text: str, *, file: str) -> str:
    """The SHA-256 of `file` in a published text: the line that names the file, or the only one there is."""
    lines = [line for line in text.splitlines() if _SHA256.search(line)]
    named = [line for line in lines if file in line.replace("*", " ").split()]
    chosen = named or (lines if len(lines) == 1 else [])
    if not chosen:
        raise DownloadError(f"no SHA-256 for {file} is published")
    match = _SHA256.search(chosen[0])
    assert match, "lines without one are left out above"
    return match[0].lower()


def _first_answer(url: str, *, seconds: float) -> bytes:
    """The first request to a host, with a limit on everything: also on a name server that does not answer."""
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
    answer = answers[0] if answers else DownloadError(f"{url} does not answer within {seconds:g} s")
    if isinstance(answer, DownloadError):
        raise answer
    return answer


def _get(url: str, *, seconds: float) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=seconds) as response:
            return bytes(response.read())
    except OSError as error:
        raise DownloadError(f"{url}: {error}") from error


def _member(payload: bytes, *, name: str) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(payload)) as archive:
            file = archive.extractfile(name)
            if file is not None:
                return file.read()
    except (tarfile.TarError, KeyError) as error:
        raise DownloadError(f"the release's archive has no {name}: {error}") from error
    raise DownloadError(f"in the release's archive {name} is not a file")
