"""The webhook's certificate: loaded at start, and reloaded when its files change."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from dovetail import logs
from dovetail.config.errors import ConfigError

_LOOK_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 0.5
_FILES: Final = ("tls.crt", "tls.key")
log = logs.get_logger("dovetail.webhook")


async def appearing(folder: Path, *, stop: asyncio.Event) -> "Certificate | None":
    """Wait for the folder's certificate, which `dovetail-certificates` may still be creating.

    None if `stop` is set first. Raises `ConfigError` for an unusable certificate.
    """
    if not _is_there(folder):
        log.info("waiting for the certificate", folder=str(folder))
    while not stop.is_set():
        if _is_there(folder):
            return Certificate(folder)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), timeout=_WAIT_SECONDS)
    return None


def _is_there(folder: Path) -> bool:
    return all((folder / name).exists() for name in _FILES)


class Certificate:
    """`tls.crt` and `tls.key` in a folder, as in a mounted Secret.

    Raises `ConfigError` for unusable files.
    """

    def __init__(self, folder: Path) -> None:
        self._files = (folder / _FILES[0], folder / _FILES[1])
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loaded = self._contents()
        self._load()

    def refresh(self) -> bool:
        """Reload changed files for new connections, and return whether a usable pair was loaded.

        Unusable files are logged, and the old certificate stays in use.
        """
        try:
            found = self._contents()
            if found == self._loaded:
                return False
            self._load()
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

    def _contents(self) -> tuple[bytes, ...]:
        try:
            return tuple(path.read_bytes() for path in self._files)
        except OSError as error:
            raise ConfigError("certificate", problem=f"cannot read {error.filename}: {error.strerror}") from error

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(*self._files)
        except (ssl.SSLError, OSError) as error:
            raise ConfigError("certificate", problem=f"{self._files[0]} cannot be used: {error}") from error
