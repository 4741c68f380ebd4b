"""Lets a tenant's ResourceQuota on a vendor's GPUs bind GPUs of Dovetail too, by a companion."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from dovetail.api.meta import EventType, key_of
from dovetail.api.reasons.events import OTHER_QUOTA
from dovetail.api.resources import RESOURCEQUOTAS
from dovetail.gpu.device_plugins import Vendors
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound
from dovetail.kube.reflector import Reflector
from dovetail.kube.retry import BACKOFF
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.manifests.counted_quota import (
    ResourceQuota,
    counted_quota,
    has_scopes_of,
    is_counted,
    says,
)

_HANDS: Final = 2


class VendorQuotas:
    """Follows all ResourceQuotas, and keeps the companion of each that limits the vendor's GPUs."""

    def __init__(
        self, client: Client, *, vendors: Vendors, post: Callable[[Announcement], None], rng: random.Random
    ) -> None:
        self._client = client
        # Managed nodes are NVIDIA's unless a request names another vendor.
        self._resource = vendors.by_name.get(vendors.default, vendors.default)
        self._post = post
        self._rng = rng
        self._queue = WorkQueue()
        # By namespace and UID of the tenant's: what another namespace claims counts for nothing.
        self._companions: dict[tuple[str, str], ResourceQuota] = {}
        self._quotas = Reflector(client, resource=RESOURCEQUOTAS, as_type=ResourceQuota, on_event=self._on_event)

    async def run(self) -> None:
        """Keep the ResourceQuotas until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._quotas.run())
            await self._quotas.synced.wait()
            await self._queue.serve(self._keep, hands=_HANDS, failed=_failed, rng=self._rng, backoff=BACKOFF)

    def _on_event(self, type_: EventType, quota: ResourceQuota) -> None:
        meta = quota.metadata
        if not is_counted(quota):
            if type_ != "DELETED":
                self._queue.add(key_of(meta))
            return
        for owner in meta.owner_references:
            if type_ == "DELETED":
                self._companions.pop((meta.namespace, owner.uid), None)
            else:
                self._companions[meta.namespace, owner.uid] = quota
            self._queue.add(f"{meta.namespace}/{owner.name}")

    async def _keep(self, key: str) -> None:
        """Make the companion of this ResourceQuota say what it must; garbage collection removes it with its owner."""
        quota = self._quotas.store.get(key)
        if quota is None:
            return
        wanted = counted_quota(quota, resource=self._resource)
        found = self._companions.get((quota.metadata.namespace, quota.metadata.uid))
        if found is not None and (wanted is None or not says(found, wanted=wanted)):
            await self._correct(found, wanted=wanted)
        elif found is None and wanted is not None:
            await self._create(quota, wanted=wanted)

    async def _create(self, quota: ResourceQuota, *, wanted: dict[str, Any]) -> None:
        meta = quota.metadata
        try:
            await self._client.create(RESOURCEQUOTAS, body=wanted, as_type=ResourceQuota, namespace=meta.namespace)
        except AlreadyExists:
            name = wanted["metadata"]["name"]
            if (other := self._quotas.store.get(f"{meta.namespace}/{name}")) is None or is_counted(other):
                return
            why = OTHER_QUOTA(name=name)
            self._post(Announcement(about=meta, of=RESOURCEQUOTAS, severity="Warning", why=why))

    async def _correct(self, found: ResourceQuota, *, wanted: dict[str, Any] | None) -> None:
        """Let it say what is wanted; delete it if nothing is, or if it counts other pods, which never changes."""
        meta = found.metadata
        try:
            if wanted is None or not has_scopes_of(found, wanted=wanted):
                # Its end is an event, upon which another one is made.
                await self._client.delete(RESOURCEQUOTAS, name=meta.name, namespace=meta.namespace, uid=meta.uid)
                return
            gone = dict.fromkeys(found.spec.hard.keys() - wanted["spec"]["hard"].keys())
            patch = {"metadata": {"uid": meta.uid}, "spec": {"hard": gone | wanted["spec"]["hard"]}}
            await self._client.patch(
                RESOURCEQUOTAS, name=meta.name, patch=patch, as_type=ResourceQuota, namespace=meta.namespace
            )
        except (NotFound, Conflict):
            # Its next event says more.
            return


def _failed(key: str, error: Exception, seconds: float) -> None:
    log_failure("the companion of a ResourceQuota is not kept yet", error=error, wait=seconds, quota=key)
