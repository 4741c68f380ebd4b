"""Stores the learned factors of start estimates, and how often the bounds held, in a ConfigMap, across restarts.

Both can be learned again. A failed read or write is therefore only logged.
"""

from typing import Final

from dovetail import names
from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.queries.configmaps import put_data
from dovetail.logs import get_logger
from dovetail.process.guarded_loops import Guard, repeat
from dovetail.queue.estimates.calibration import Factors, Held, Misses

log = get_logger("dovetail.operator.lasting")

KEY: Final = "factors"
HELD: Final = "held"
_EVERY_SECONDS: Final = 300.0


class LastingMisses:
    """Stores `misses` in a ConfigMap in `namespace`."""

    def __init__(self, client: Client, *, misses: Misses, namespace: str) -> None:
        self._client = client
        self._misses = misses
        self._namespace = namespace
        # The initial factors need not be stored.
        self._kept = _data(Misses())

    async def run(self) -> None:
        """Load the stored factors, then store what is learned, until cancelled."""
        with Guard("what was learned of estimates").around():
            await self.take_up()
        await repeat(self.keep, every_seconds=_EVERY_SECONDS, what="what is learned of estimates")

    async def take_up(self) -> None:
        """Load the stored factors if they can be read."""
        try:
            found = await self._client.get(
                CONFIGMAPS, name=names.ESTIMATES, as_type=ConfigMap, namespace=self._namespace
            )
            self._misses.restore(_factors(found.data.get(KEY, "")), held=_held(found.data.get(HELD, "")))
        except NotFound:
            return
        except (KubeError, ValueError) as error:
            log.warning("what was learned of estimates cannot be read", configmap=names.ESTIMATES, error=str(error))
        else:
            self._kept = _data(self._misses)

    async def keep(self) -> None:
        """Store what was learned if it has changed."""
        data = _data(self._misses)
        if data == self._kept:
            return
        try:
            # One operator acts at a time, and what is lost is learned again.
            await put_data(self._client, name=names.ESTIMATES, namespace=self._namespace, data=data)
        except KubeError as error:
            log.warning("what was learned of estimates cannot be kept", configmap=names.ESTIMATES, error=str(error))
        else:
            self._kept = data


def _data(misses: Misses) -> dict[str, str]:
    factors, held = misses.factors, misses.held
    return {KEY: f"{factors.early:.4f} {factors.late:.4f}", HELD: f"{held.jobs} {held.within:.2f}"}


def _factors(text: str) -> Factors:
    """Read what `_data` wrote. Raises `ValueError` for other text."""
    early, late = map(float, text.split())
    return Factors(early=early, late=late)


def _held(text: str) -> Held:
    """Read what `_data` wrote. Raises `ValueError` for other text."""
    jobs, within = text.split()
    return Held(jobs=int(jobs), within=float(within))
