"""What Kueue says about Jobs that it has not admitted yet, if Kueue is installed. Read only.

Kueue keeps a Workload for each Job, whose conditions say what the Job waits for.

A module of its own: one of the watchers that `build` lists, which rests in a cluster without Kueue.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from dovetail.api.kueue import WORKLOADS, Workload, words
from dovetail.api.meta import EventType, OwnerReference, key_of
from dovetail.api.resources import Resource
from dovetail.jobs.batch_job import is_external
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger
from dovetail_operator.state.state import State

log = get_logger("dovetail.operator.kueue")

_LOOK_SECONDS: Final = 60.0
_ABSENT: Final = "this cluster has no Kueue"


class KueueWatch:
    """Keeps the decisions' Kueue messages current.

    `changed` gets the key of each GPUJob with a new one.
    """

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        changed: Callable[[str], None],
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._client = client
        self._state = state
        self._changed = changed
        self._look_seconds = look_seconds

    async def run(self) -> None:
        """Follow Workloads until cancelled.

        If Kueue is not installed, look for it every `look_seconds`.
        """
        while (resource := await self._served()) is None:  # noqa: ASYNC110 - another program changes it
            await asyncio.sleep(self._look_seconds)
        self._set_message("")
        log.info("Kueue is here: its words are passed on", version=resource.version)
        await Reflector(self._client, resource=resource, as_type=Workload, on_event=self._on_event).run()

    async def _served(self) -> Resource | None:
        absent = True
        for resource in WORKLOADS:
            try:
                async for _ in self._client.pages(resource, as_type=dict[str, Any], page_size=1):
                    return resource
            except KubeError as error:
                # Kueue is usually not installed; or the right to read was removed.
                log.debug("no Workloads of Kueue", version=resource.version, error=str(error))
                absent = absent and isinstance(error, NotFound)
        self._set_message(_ABSENT if absent else "")
        return None

    def _set_message(self, message: str) -> None:
        """Set one message for all Jobs that wait for Kueue while no Workloads can be read."""
        waiting = {child.metadata.uid: key_of(child.metadata) for child in self._state.store.children()}
        waiting = {uid: key for uid, key in waiting.items() if is_external(self._state.store.jobs[key])}
        before = self._state.decisions.kueue
        self._state.decisions.replace_kueue(dict.fromkeys(waiting, message) if message else {})
        for uid, key in waiting.items():
            if before.get(uid, "") != message:
                self._changed(key)

    def _on_event(self, type_: EventType, workload: Workload) -> None:
        owner = _job_of(workload)
        if owner is None:
            return
        key = f"{workload.metadata.namespace}/{owner.name}"
        job = self._state.store.jobs.get(key)
        if job is None or not is_external(job):
            self._state.decisions.set_kueue(owner.uid, message="")
            return
        message = "" if type_ == "DELETED" else words(workload.status.conditions)
        before = self._state.decisions.kueue.get(owner.uid, "")
        self._state.decisions.set_kueue(owner.uid, message=message)
        if message != before:
            self._changed(key)


def _job_of(workload: Workload) -> OwnerReference | None:
    owners = workload.metadata.owner_references
    return next((each for each in owners if each.controller and each.kind == "Job"), None)
