"""Numbers the devices of the cluster in the ConfigMap `dovetail-device-indexes`."""

import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dovetail.api.gpunode import GPUNode
from dovetail.gpu.device_indexes import CONFIGMAP_NAME, NodeDevice, add_indexes
from dovetail.kube.client import Client
from dovetail.kube.retry import retry_on_conflict
from dovetail.process.guarded_loops import repeat
from dovetail_operator.writes.configmaps import CONFLICTS, read_configmap, write_configmap

_EVERY_SECONDS: Final = 2.0
_CHECK_SECONDS: Final = 60.0
_ATTEMPTS: Final = 5


class DeviceIndexes:
    """Gives each device of `gpunodes` a number. `namespace` is where the ConfigMap is stored.

    New devices get theirs when two rounds see the same ones: agents that start together are numbered in name order.
    """

    def __init__(
        self,
        client: Client,
        *,
        gpunodes: Callable[[], Iterable[GPUNode]],
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._gpunodes = gpunodes
        self._namespace = namespace
        self._clock = clock
        # What was given, which edits or deletion of the ConfigMap do not take back.
        self._given: dict[str, str] = {}
        self._numbered = frozenset[NodeDevice]()
        self._seen: frozenset[NodeDevice] | None = None
        self._checked_at = float("-inf")

    async def run(self) -> None:
        """Number devices until cancelled."""
        await repeat(self.update, every_seconds=_EVERY_SECONDS, what="the numbers of devices")

    async def update(self) -> None:
        """Number the devices that the last round has seen too, and restore lost entries once a minute."""
        devices = frozenset(devices_of(self._gpunodes()))
        settled, self._seen = devices == self._seen, devices
        is_due = self._clock() - self._checked_at >= _CHECK_SECONDS
        if settled and (is_due or not devices <= self._numbered):
            await retry_on_conflict(lambda _: self._number(devices), attempts=_ATTEMPTS, conflicts=CONFLICTS)
            self._numbered |= devices
            self._checked_at = self._clock()

    async def _number(self, devices: frozenset[NodeDevice]) -> None:
        found = await read_configmap(self._client, name=CONFIGMAP_NAME, namespace=self._namespace)
        data = found.data | self._given
        data |= add_indexes(devices, data=data)
        if data != found.data:
            await write_configmap(self._client, configmap=msgspec.structs.replace(found, data=data))
        self._given = data


def devices_of(gpunodes: Iterable[GPUNode]) -> Iterable[NodeDevice]:
    """The devices that a request may name, without the instances of a partitioned one."""
    for gpunode in gpunodes:
        for device in gpunode.status.devices:
            if not device.mig_profile:
                yield NodeDevice(gpunode.metadata.name, device.index)
