"""A server's certificate: loaded at start, and reloaded when its files change.

With `clients`, every client must show a certificate of the CAs in that file, and no handshake is shortened by an
earlier one: a CA that was removed, or a certificate that has expired, admits no new connection.
"""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from dovetail import logs
from dovetail.config.errors import ConfigError

_LOOK_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 0.5
_PAIR: Final = ("tls.crt", "tls.key")
AUTHORITIES: Final = "ca.crt"  # the CAs of clients, in the folder of a server's certificate
log = logs.get_logger("dovetail.certificate")


async def appearing(folder: Path, *, stop: asyncio.Event, clients: Path | None = None) -> "Certificate | None":
    """Wait for the folder's certificate, which `dovetail-certificates` may still be creating.

    None if `stop` is set first. Raises `ConfigError` for an unusable certificate.
    """
    if not _is_there(folder, clients=clients):
        log.info("waiting for the certificate", folder=str(folder))
    while not stop.is_set():
        if _is_there(folder, clients=clients):
            return Certificate(folder, clients=clients)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), timeout=_WAIT_SECONDS)
    return None


def _is_there(folder: Path, *, clients: Path | None) -> bool:
    return all(file.exists() for file in _files(folder, clients=clients))


def _files(folder: Path, *, clients: Path | None) -> list[Path]:
    return [*(folder / name for name in _PAIR), *([] if clients is None else [clients])]


class Certificate:
    """`tls.crt` and `tls.key` in a folder, as in a mounted Secret; `clients` is a file with the CAs of clients.

    Servers listen with `context`. Raises `ConfigError` for unusable files.
    """

    def __init__(self, folder: Path, *, clients: Path | None = None) -> None:
        self._folder = folder
        self._clients = clients
        self._loaded = self._contents()
        self._current = self.context = self._context()
        # A context can get a new certificate, but cannot lose a CA. Each new connection therefore takes the newest one.
        self.context.sni_callback = self._choose

    def refresh(self) -> bool:
        """Reload changed files for new connections, and return whether a usable pair was loaded.

        Unusable files are logged, and the old certificate stays in use.
        """
        try:
            found = self._contents()
            if found == self._loaded:
                return False
            self._current = self._context()
        except ConfigError as error:
            # The files may be only partly written; the old certificate stays in use.
            log.warning("certificate not reloaded", error=str(error))
            return False
        self._loaded = found
        log.info("certificate reloaded")
        return True

    async def watch(self) -> None:
        """Check for changed files every `_LOOK_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.refresh()

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, *_: object) -> None:
        """Called by OpenSSL in each handshake, also where the client names no server."""
        connection.context = self._current

    def _contents(self) -> tuple[bytes, ...]:
        try:
            return tuple(file.read_bytes() for file in _files(self._folder, clients=self._clients))
        except OSError as error:
            raise ConfigError("certificate", problem=f"cannot read {error.filename}: {error.strerror}") from error

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            file, key = (self._folder / name for name in _PAIR)
            context.load_cert_chain(file, key)
            if self._clients is not None:
                file = self._clients
                context.load_verify_locations(file)
                context.verify_mode = ssl.CERT_REQUIRED
                # The client's certificate is verified in full handshakes only. TLS 1.3 shortens them by tickets alone.
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.num_tickets = 0
        except (ssl.SSLError, OSError) as error:
            raise ConfigError("certificate", problem=f"{file} cannot be used: {error}") from error
        return context
