"""A check that is repeated until the process ends, and the reason why the last one failed."""

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from dovetail import logs
from dovetail.kube.errors import KubeError
from dovetail_certificates.pairs import PairError
from dovetail_certificates.secret_store import SecretError

LOOK_SECONDS: Final = 10.0
log = logs.get_logger("dovetail.certificates")


class Check(ABC):
    """Checks every `look_seconds`; `problem` says why the last check failed, empty if it succeeded."""

    def __init__(self, *, secret: str, look_seconds: float) -> None:
        self.problem = "it has not looked yet"
        self._secret = secret
        self._look_seconds = look_seconds

    @abstractmethod
    async def reconcile(self) -> None:
        """Read what is stored and write what differs. Raises `KubeError`, `SecretError` and `PairError`."""

    async def run(self) -> None:
        """Check until cancelled; an error costs one check, and the next one retries."""
        while True:
            try:
                await self.reconcile()
                self.problem = ""
            except (KubeError, SecretError, PairError) as error:
                self.problem = str(error)
                log.warning("the certificate is not kept", secret=self._secret, error=str(error))
            await asyncio.sleep(self._look_seconds)
