"""Follows the pods that are bound to the local node, and lets each live.

A module of its own: it starts and ends the tasks of many pods, where `pod_life` is one pod's and `main` reads the
command line.
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import is_terminal
from dovetail.api.meta import EventType, key_of
from dovetail.api.resources import PODS
from dovetail.kube.reflector import Reflector
from dovetail.logs import get_logger
from dovetail_local_node import processes
from dovetail_local_node.limits import groups
from dovetail_local_node.pod_life import Node, PodLife
from dovetail_local_node.pod_object import Container, LocalPod

log = get_logger("dovetail.local_node.pods")

_ORPHAN_GRACE_SECONDS: Final = 5.0


def lean(pod: LocalPod) -> LocalPod:
    """The pod without what only its start needs, once it has ended: 10 of 11 KiB, for each job that is not deleted."""
    if not is_terminal(pod.status.phase):
        return pod
    containers = [Container(name=each.name, resources=each.resources) for each in pod.spec.containers]
    spec = replace(pod.spec, containers=containers, init_containers=[], volumes=[])
    # One that ends while its life begins still runs nothing if it is a reservation.
    labels = {key: value for key, value in pod.metadata.labels.items() if key == names.LABEL_RESERVATION}
    metadata = replace(pod.metadata, labels=labels, annotations={}, owner_references=(), finalizers=())
    return replace(pod, metadata=metadata, spec=spec)


class Pods:
    """The pods of the local node, each with a task of its own."""

    def __init__(self, node: Node, *, name: str) -> None:
        self.reflector = Reflector(
            node.client,
            resource=PODS,
            as_type=LocalPod,
            on_event=self._on_event,
            transform=lean,
            field_selector=f"spec.nodeName={name}",
        )
        self._node = node
        self._lives: dict[str, PodLife] = {}
        self._start: Callable[[PodLife], None] | None = None

    async def run(self) -> None:
        """Follow pods until cancelled. Their processes outlive this."""
        async with asyncio.TaskGroup() as group:

            def start(life: PodLife) -> None:
                group.create_task(self._live(life))

            self._start = start
            group.create_task(self.reflector.run())
            await self.reflector.synced.wait()
            await self._end_orphans()

    def uid_of(self, namespace: str, name: str) -> str | None:
        """The UID of the pod that has this name now."""
        pod = self.reflector.store.get(f"{namespace}/{name}")
        return None if pod is None else pod.metadata.uid

    def _on_event(self, event: EventType, pod: LocalPod) -> None:
        uid = pod.metadata.uid
        life = self._lives.get(uid)
        if event == "DELETED":
            if life is not None:
                life.gone()
        elif life is not None:
            life.seen(pod)
        else:
            self._lives[uid] = PodLife(node=self._node, pod=pod)
            assert self._start is not None
            self._start(self._lives[uid])

    async def _live(self, life: PodLife) -> None:
        meta = life.pod.metadata
        try:
            await life.run()
        except Exception:
            log.exception("pod failed", pod=key_of(meta))
        finally:
            self._lives.pop(meta.uid, None)

    async def _end_orphans(self) -> None:
        """End the processes of pods that were deleted while no local node ran."""
        known = {pod.metadata.uid for pod in self.reflector.store.values()}
        for run in self._node.runs.all():
            if run.uid in known:
                continue
            process = self._node.runs.process(run.uid)
            if process is not None and run.boot_id == self._node.boot_id:
                log.info("ending processes of a deleted pod", pod=run.name)
                processes.signal_group(process, number=signal.SIGTERM)
                with suppress(TimeoutError):
                    await asyncio.wait_for(processes.until_gone(process), _ORPHAN_GRACE_SECONDS)
                processes.signal_group(process, number=signal.SIGKILL)
                await asyncio.to_thread(processes.kill_rest, run.uid)
            await groups.end([Path(group) for group in run.groups])
            await asyncio.to_thread(self._node.runs.remove, run.uid)
