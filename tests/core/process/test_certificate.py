"""Certificates as they come and go on a disk. The key pairs are of this test alone and say 127.0.0.1."""

import asyncio
import ssl
import subprocess
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from dovetail.config.errors import ConfigError
from dovetail.process import serving
from dovetail.process.certificate import Certificate, appearing
from dovetail_webhook.main import main


def write_pair(folder: Path) -> bytes:
    """A fresh key pair in the folder; its certificate."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"), "-days", "1",
            "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return (folder / "tls.crt").read_bytes()


async def trusted(certificate: Certificate, *, authority: bytes) -> bool:
    """Whether a client that knows only `authority` gets through."""
    context = ssl.create_default_context(cadata=authority.decode())
    async with (
        serving.listening(web.Application(), host="127.0.0.1", port=0, tls=certificate.context) as port,
        aiohttp.ClientSession() as http,
    ):
        try:
            async with http.get(f"https://127.0.0.1:{port}/", ssl=context) as response:
                return response.status == 404
        except aiohttp.ClientConnectorCertificateError:
            return False


async def test_a_new_certificate_serves_without_a_restart(tmp_path: Path) -> None:
    first = write_pair(tmp_path)
    certificate = Certificate(tmp_path)
    assert await trusted(certificate, authority=first)
    second = write_pair(tmp_path)
    assert certificate.refresh()
    assert await trusted(certificate, authority=second)
    assert not await trusted(certificate, authority=first)


def test_other_cas_of_clients_are_loaded_although_the_pair_stays(tmp_path: Path) -> None:
    first = write_pair(tmp_path)
    clients = tmp_path / "ca.crt"
    clients.write_bytes(first)
    certificate = Certificate(tmp_path, clients=clients)
    assert not certificate.refresh()
    (other := tmp_path / "other").mkdir()
    clients.write_bytes(write_pair(other))
    assert certificate.refresh()
    assert not certificate.refresh()


def test_files_that_stay_are_not_loaded_again(tmp_path: Path) -> None:
    write_pair(tmp_path)
    assert not Certificate(tmp_path).refresh()


async def test_a_half_written_pair_leaves_the_old_one_in_service(tmp_path: Path) -> None:
    first = write_pair(tmp_path)
    certificate = Certificate(tmp_path)
    (tmp_path / "tls.crt").write_text("half")
    assert not certificate.refresh()
    (tmp_path / "tls.key").unlink()
    assert not certificate.refresh()
    assert await trusted(certificate, authority=first)


async def test_a_certificate_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    waiting = asyncio.create_task(appearing(tmp_path, stop=asyncio.Event()))
    await asyncio.sleep(0)
    assert not waiting.done()
    authority = write_pair(tmp_path)
    certificate = await asyncio.wait_for(waiting, timeout=30)
    assert certificate is not None
    assert await trusted(certificate, authority=authority)


async def test_who_is_to_stop_waits_for_no_certificate(tmp_path: Path) -> None:
    stop = asyncio.Event()
    waiting = asyncio.create_task(appearing(tmp_path, stop=stop))
    stop.set()
    assert await asyncio.wait_for(waiting, timeout=30) is None


def test_a_folder_without_a_certificate_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*tls\.crt: No such file or directory"):
        Certificate(tmp_path)


def test_the_program_says_what_is_wrong_with_its_certificate(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "tls.crt").write_text("none")
    (tmp_path / "tls.key").write_text("none")
    assert main([f"--certificates={tmp_path}", "--port=0", "--metrics-port=0"]) == 2
    assert "tls.crt cannot be used" in capsys.readouterr().err
