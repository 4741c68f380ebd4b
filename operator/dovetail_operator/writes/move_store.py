"""Stores when jobs moved that were deleted since, so that a restart does not give their moves back to the hour.

Those of jobs that exist are in their statuses. A failed read or write is only logged: it lets more jobs move than the
budget allows, and none that has not consented.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import ConfigMap
from dovetail.api.resources import CONFIGMAPS
from dovetail.decoding import UnreadableError, decode
from dovetail.formats.timestamps import moment
from dovetail.jobs.moves import MovesOfDeleted
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.queries.configmaps import put_data
from dovetail.logs import get_logger
from dovetail.process.guarded_loops import Guard, repeat

log = get_logger("dovetail.operator.moves")

KEY: Final = "movesOfDeleted"
_EVERY_SECONDS: Final = 10.0


class LastingMoves:
    """Stores `moves` in a ConfigMap in `namespace`."""

    def __init__(self, client: Client, *, moves: MovesOfDeleted, namespace: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._moves = moves
        self._namespace = namespace
        self._now = now
        self._kept: Mapping[str, str] = {}

    async def run(self) -> None:
        """Load what an earlier operator stored, then store what is new, until cancelled."""
        with Guard("the moves of deleted jobs").around():
            await self.take_up()
        await repeat(self.keep, every_seconds=_EVERY_SECONDS, what="moves of deleted jobs")

    async def take_up(self) -> None:
        """Load the stored times if they can be read."""
        try:
            found = await self._client.get(
                CONFIGMAPS, name=names.ESTIMATES, as_type=ConfigMap, namespace=self._namespace
            )
            self._moves.restore(_times(found.data.get(KEY, "{}")))
        except NotFound:
            return
        except (KubeError, UnreadableError, ValueError) as error:
            log.warning("moves of deleted jobs cannot be read", configmap=names.ESTIMATES, error=str(error))
        else:
            self._kept = self._moves.times(now=self._now())

    async def keep(self) -> None:
        """Store the times that are not stored yet. That others are over needs no write."""
        times = self._moves.times(now=self._now())
        if times.keys() <= self._kept.keys():
            return
        data = {KEY: msgspec.json.encode(times).decode()}
        try:
            await put_data(self._client, name=names.ESTIMATES, namespace=self._namespace, data=data)
        except KubeError as error:
            log.warning("moves of deleted jobs cannot be kept", configmap=names.ESTIMATES, error=str(error))
        else:
            self._kept = times


def _times(text: str) -> dict[str, str]:
    """Read what `keep` wrote. Raises `UnreadableError` and `ValueError` for other text."""
    found = decode(text, as_type=dict[str, str])
    for at in found.values():
        moment(at)
    return found
