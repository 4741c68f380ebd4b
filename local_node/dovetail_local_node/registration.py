"""Registers this machine as a Node, and keeps its status and its Lease fresh.

A module of its own: the heartbeat, which `main` runs in parallel to the pods.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.api.builtin import Lease, Node
from dovetail.api.resources import LEASES, NODES
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.logs import get_logger
from dovetail_local_node import node_object
from dovetail_local_node.machine import Machine

log = get_logger("dovetail.local_node.registration")

_HEARTBEAT_SECONDS: Final = 10.0
# The node controller reads the Lease; the status is written again so that its times stay plausible.
_STATUS_EVERY: Final = 30


@dataclass(slots=True, kw_only=True)
class Registration:
    """The Node of this machine.

    `limits` says what the kernel enforces. `problem` says why the last heartbeat failed; empty if it succeeded.
    """

    client: Client
    name: str
    machine: Machine
    port: int
    now: Callable[[], datetime]
    limits: str
    problem: str = "the node is not registered yet"

    async def run(self) -> None:
        """Register, then send heartbeats until cancelled. An error costs one heartbeat."""
        beats = 0
        while True:
            try:
                if self.problem or beats % _STATUS_EVERY == 0:
                    await self._register()
                await self._renew()
                self.problem, beats = "", beats + 1
            except KubeError as error:
                self.problem = str(error)
                log.warning("heartbeat failed", node=self.name, error=str(error))
            await asyncio.sleep(1.0 if self.problem else _HEARTBEAT_SECONDS)

    async def _register(self) -> None:
        with suppress(AlreadyExists):
            await self.client.create(NODES, body=node_object.manifest(self.name, machine=self.machine), as_type=Node)
        status = node_object.status(machine=self.machine, port=self.port, limits=self.limits, now=self.now())
        await self.client.patch(
            NODES, name=self.name, patch={"status": status}, as_type=Node, kind="strategic", subresource="status"
        )

    async def _renew(self) -> None:
        node = await self.client.get(NODES, name=self.name, as_type=Node)
        lease = node_object.lease(self.name, node_uid=node.metadata.uid, now=self.now())
        where = node_object.LEASE_NAMESPACE
        try:
            await self.client.patch(
                LEASES, name=self.name, patch={"spec": lease["spec"]}, as_type=Lease, namespace=where
            )
        except NotFound:
            await self.client.create(LEASES, body=lease, as_type=Lease, namespace=where)
