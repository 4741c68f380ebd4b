"""Wake-up of unschedulable pods: changing one object makes kube-scheduler retry them.

A change to any object that kube-scheduler watches requeues the pods that an extender refused. Nodes and pods would do,
but the right to change them is also the right to retaint nodes or to run other images. CSIStorageCapacity is watched
too: the chart creates one for a storage class that does not exist, so no volume depends on it, and the extender may
patch that object and nothing else.
"""

from datetime import UTC, datetime
from typing import Any, Final

from dovetail.api.resources import CSISTORAGECAPACITIES
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.logs import get_logger
from dovetail.names import GROUP
from dovetail.process.guarded_loops import repeat
from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.metrics import Metrics

log = get_logger(__name__)

OBJECT: Final = "dovetail-wakeup"
ANNOTATION: Final = f"{GROUP}/woken-at"
LOOK_SECONDS: Final = 0.05
DEADLINE_SECONDS: Final = 5.0


class Waking:
    """Wakes unschedulable pods while `run()` is running."""

    def __init__(self, client: Client, *, waiting: Waiting, namespace: str, metrics: Metrics) -> None:
        self._client = client
        self._waiting = waiting
        self._namespace = namespace
        self._metrics = metrics

    async def run(self) -> None:
        """Check every `LOOK_SECONDS` until cancelled."""
        await repeat(self.send_due, every_seconds=LOOK_SECONDS, what="waking pods")

    async def send_due(self) -> None:
        """Send a wake-up if one is due; a failed write is logged and retried later."""
        if not self._waiting.wake_due():
            return
        try:
            await self._touch()
        except KubeError as error:
            self._waiting.failed()
            log.warning("waiting pods could not be woken", object=OBJECT, error=str(error))
            return
        self._waiting.woken()
        self._metrics.wakeups.inc()

    async def _touch(self) -> None:
        patch = {"metadata": {"annotations": {ANNOTATION: datetime.now(UTC).isoformat()}}}
        await self._client.patch(
            CSISTORAGECAPACITIES,
            name=OBJECT,
            patch=patch,
            as_type=dict[str, Any],
            namespace=self._namespace,
            deadline_seconds=DEADLINE_SECONDS,
        )
