"""Stores in ConfigMaps, across restarts, what was learned of start estimates, and the last moves of deleted jobs.

The first can be learned again, and the second is over within an hour. A failed read or write is therefore only logged.
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
from dovetail.queue.estimates.calibration import Misses, calibration_in, data_of

log = get_logger("dovetail.operator.lasting")

MOVES: Final = "movesOfDeleted"
_EVERY_SECONDS: Final = 300.0
_MOVES_EVERY_SECONDS: Final = 10.0


class LastingMisses:
    """Stores `misses` in a ConfigMap in `namespace`."""

    def __init__(self, client: Client, *, misses: Misses, namespace: str) -> None:
        self._client = client
        self._misses = misses
        self._namespace = namespace
        # The initial factors need not be stored.
        self._kept = data_of(Misses())

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
            if (known := calibration_in(found.data)) is not None:
                self._misses.restore(known.factors, held=known.held)
        except NotFound:
            return
        except (KubeError, ValueError) as error:
            log.warning("what was learned of estimates cannot be read", configmap=names.ESTIMATES, error=str(error))
        else:
            self._kept = data_of(self._misses)

    async def keep(self) -> None:
        """Store what was learned if it has changed."""
        data = data_of(self._misses)
        if data == self._kept:
            return
        try:
            # One operator acts at a time, and what is lost is learned again.
            await put_data(self._client, name=names.ESTIMATES, namespace=self._namespace, data=data)
        except KubeError as error:
            log.warning("what was learned of estimates cannot be kept", configmap=names.ESTIMATES, error=str(error))
        else:
            self._kept = data


class LastingMoves:
    """Stores when jobs moved that were deleted since, so that a restart does not give their moves back to the hour.

    Those of jobs that exist are in their statuses. No user may read the ConfigMap: it has moves of the jobs of others.
    After a failed read or write, more jobs may move within the hour than the budget allows, and none that has not
    consented.
    """

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
        await repeat(self.keep, every_seconds=_MOVES_EVERY_SECONDS, what="moves of deleted jobs")

    async def take_up(self) -> None:
        """Load the stored times if they can be read."""
        try:
            found = await self._client.get(CONFIGMAPS, name=names.MOVES, as_type=ConfigMap, namespace=self._namespace)
            self._moves.restore(_times(found.data.get(MOVES, "{}")))
        except NotFound:
            return
        except (KubeError, UnreadableError, ValueError) as error:
            log.warning("moves of deleted jobs cannot be read", configmap=names.MOVES, error=str(error))
        else:
            self._kept = self._moves.times(now=self._now())

    async def keep(self) -> None:
        """Store the times that are not stored yet. That others are over needs no write."""
        times = self._moves.times(now=self._now())
        if times.keys() <= self._kept.keys():
            return
        data = {MOVES: msgspec.json.encode(times).decode()}
        try:
            await put_data(self._client, name=names.MOVES, namespace=self._namespace, data=data)
        except KubeError as error:
            log.warning("moves of deleted jobs cannot be kept", configmap=names.MOVES, error=str(error))
        else:
            self._kept = times


def _times(text: str) -> dict[str, str]:
    """Read what `keep` wrote. Raises `UnreadableError` and `ValueError` for other text."""
    found = decode(text, as_type=dict[str, str])
    for at in found.values():
        if moment(at).tzinfo is None:
            raise ValueError(f"{at} has no time zone")
    return found
