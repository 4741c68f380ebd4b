"""Stores the learned factors of start estimates in a ConfigMap, across restarts.

The factors can be learned again. A failed read or write is therefore only logged.
"""

from typing import Final

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.logs import get_logger
from dovetail.process.guarded_loops import Guard, repeat
from dovetail.queue.estimates.calibration import Factors, Misses

log = get_logger("dovetail.operator.lasting")

CONFIGMAP_NAME: Final = "dovetail-estimates"
KEY: Final = "factors"
_EVERY_SECONDS: Final = 300.0


class LastingMisses:
    """Stores `misses` in a ConfigMap in `namespace`."""

    def __init__(self, client: Client, *, misses: Misses, namespace: str) -> None:
        self._client = client
        self._misses = misses
        self._namespace = namespace
        # The initial factors need not be stored.
        self._kept = _text(Misses().factors)

    async def run(self) -> None:
        """Load the stored factors, then store what is learned, until cancelled."""
        with Guard("what was learned of estimates").around():
            await self.take_up()
        await repeat(self.keep, every_seconds=_EVERY_SECONDS, what="what is learned of estimates")

    async def take_up(self) -> None:
        """Load the stored factors if they can be read."""
        try:
            found = await self._client.get(
                CONFIGMAPS, name=CONFIGMAP_NAME, as_type=ConfigMap, namespace=self._namespace
            )
            text = found.data.get(KEY, "")
            self._misses.restore(_factors(text))
        except NotFound:
            return
        except (KubeError, ValueError) as error:
            log.warning("what was learned of estimates cannot be read", configmap=CONFIGMAP_NAME, error=str(error))
        else:
            self._kept = text

    async def keep(self) -> None:
        """Store the factors if they have changed."""
        text = _text(self._misses.factors)
        if text == self._kept:
            return
        try:
            await self._write({KEY: text})
        except KubeError as error:
            log.warning("what was learned of estimates cannot be kept", configmap=CONFIGMAP_NAME, error=str(error))
        else:
            self._kept = text

    async def _write(self, data: dict[str, str]) -> None:
        """Write the ConfigMap without a precondition.

        One operator acts at a time, and lost factors are learned again.
        """
        home = self._namespace
        try:
            await self._client.patch(
                CONFIGMAPS, name=CONFIGMAP_NAME, patch={"data": data}, as_type=ConfigMap, namespace=home
            )
        except NotFound:
            made = ConfigMap(metadata=ObjectMeta(name=CONFIGMAP_NAME, namespace=home), data=data)
            await self._client.create(CONFIGMAPS, body=made, as_type=ConfigMap, namespace=home)


def _text(factors: Factors) -> str:
    return f"{factors.early:.4f} {factors.late:.4f}"


def _factors(text: str) -> Factors:
    """Read what `_text` wrote. Raises `ValueError` for other text."""
    early, late = map(float, text.split())
    return Factors(early=early, late=late)
