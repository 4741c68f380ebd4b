"""Follows the pods in the queue, passes on the groups that they form, and remembers where services ran.

Objects of other APIs say which pods start together; it follows those too, where the API server has them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from dovetail import names
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import PODS
from dovetail.jobs.guests.gangs import GANG_KINDS, Gang, GangKind, gang_in, gang_of, written
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.jobs.guests.pod_group import PodGroup, group_of, is_run_of_pods, kind_of_group, run_of_group
from dovetail.jobs.guests.replicas import service_of
from dovetail.kube.client import Client
from dovetail.kube.queries.optional_watch import OptionalWatch
from dovetail.kube.reflector import Reflector
from dovetail_operator.watchers.guests.watch import LOOK_SECONDS, KindWatches

# The pods of a group are created together: one look at the group serves many of their events.
_GATHER_SECONDS: Final = 0.02
# A service may have run on every node; its next replica has use for a few.
_MOST_NODES: Final = 8
_MOST_SERVICES: Final = 4096


class PodGroupWatch:
    """The informer of pods with the label of the queue, and of the gangs that they name.

    `settled` is set once their groups are known.
    """

    def __init__(self, client: Client, *, on_event: Callable[[EventType, Guest, Kind], None]) -> None:
        self.settled = asyncio.Event()
        self.gangs = Gangs(client, on_change=self._gang_changed)
        self._on_event = on_event
        self._warm = WarmNodes()
        # By namespace and run, which all pods of a group share.
        self._pods: dict[tuple[str, str], dict[str, Guest]] = {}
        self._groups: dict[tuple[str, str], PodGroup] = {}
        self._changed: dict[tuple[str, str], str] = {}
        self._wake = asyncio.Event()
        selector = f"{names.LABEL_QUEUE},{names.RUN},!{names.KUEUE_QUEUE}"
        self._reflector = Reflector(
            client, resource=PODS, as_type=Guest, on_event=self.pod_event, label_selector=selector
        )

    def pod_event(self, type_: EventType, pod: Guest) -> None:
        """Take an event of a pod that has the label."""
        meta = pod.metadata
        run = meta.labels.get(names.RUN, "")
        if not is_run_of_pods(run):
            # It belongs to an object in the queue.
            return
        where = (meta.namespace, run)
        self._warm.saw(pod)
        pods = self._pods.setdefault(where, {})
        if type_ == "DELETED":
            pods.pop(meta.uid, None)
        else:
            pods[meta.uid] = pod
        self._changed[where] = meta.resource_version
        self._wake.set()

    def warm_nodes(self, group: PodGroup) -> list[str]:
        """Nodes that have what the group's pods load, the latest first."""
        meta = group.metadata
        pods = self._pods.get((meta.namespace, meta.labels.get(names.RUN, "")), {})
        return next((self._warm.of(pod.metadata) for pod in pods.values()), [])

    def _gang_changed(self, gang: tuple[str, str]) -> None:
        namespace, said = gang
        where = namespace, run_of_group(said)
        if where in self._pods:
            self._changed.setdefault(where, "0")
            self._wake.set()

    def pass_on(self) -> None:
        """Pass on each group that has changed."""
        changed, self._changed = self._changed, {}
        for where, version in changed.items():
            pods = list(self._pods[where].values())
            gang = self.gangs.of_pod(pods[0].metadata) if pods else None
            group = group_of(pods, gang=gang)
            if not self._pods[where]:
                del self._pods[where]
            if group is not None:
                # The pod that was written last may have gone: a group that loses it is no older than before.
                before = self._groups.get(where, group).metadata.resource_version
                newest = max(before, group.metadata.resource_version, version, key=int)
                group = replace(group, metadata=replace(group.metadata, resource_version=newest))
                self._groups[where] = group
                self._on_event("MODIFIED", group, kind_of_group(group))
            elif (last := self._groups.pop(where, None)) is not None:
                gone = replace(last, metadata=replace(last.metadata, resource_version=version))
                self._on_event("DELETED", gone, kind_of_group(gone))

    async def run(self) -> None:
        """Follow the groups and gangs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self.gangs.run())
            await self._reflector.synced.wait()
            # Without its gang, a waiting group would lose its place in the queue.
            await self.gangs.settled()
            self.pass_on()
            self.settled.set()
            while True:
                await self._wake.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                self._wake.clear()
                self.pass_on()


class Gangs(KindWatches):
    """The informers of all kinds of gangs.

    `on_change` is called with the namespace of a gang that has changed, and what the annotation of its pods says.
    """

    def __init__(self, client: Client, *, on_change: Callable[[tuple[str, str]], None]) -> None:
        self._on_change = on_change
        # By namespace, prefix of the kind and name of the gang: the objects that speak of it, by their names.
        self._objects: dict[tuple[str, str, str], dict[str, Guest]] = {}
        super().__init__(
            [
                OptionalWatch(
                    client,
                    resource=kind.resource,
                    as_type=Guest,
                    on_event=partial(self.object_event, kind=kind),
                    label_selector=kind.label_selector,
                    look_seconds=LOOK_SECONDS,
                )
                for kind in GANG_KINDS
            ]
        )

    def object_event(self, type_: EventType, found: Guest, *, kind: GangKind) -> None:
        """Take an event of an object of a kind."""
        meta, name = found.metadata, kind.name_of(found)
        if not name:
            return
        objects = self._objects.setdefault((meta.namespace, kind.prefix, name), {})
        if type_ == "DELETED":
            objects.pop(meta.name, None)
        else:
            objects[meta.name] = found
        if not objects:
            del self._objects[meta.namespace, kind.prefix, name]
        self._on_change((meta.namespace, written(kind, name=name)))

    def of_pod(self, meta: ObjectMeta) -> Gang | None:
        """What the objects say that a pod in the queue names; None without them."""
        if (named := gang_in(meta)) is None:
            return None
        kind, name = named
        objects = self._objects.get((meta.namespace, kind.prefix, name), {})
        return gang_of([objects[key] for key in sorted(objects)], kind=kind) if objects else None


class WarmNodes:
    """The nodes on which the replicas of each inference service ran last: what they loaded is still there. No I/O.

    Nothing outlives the process: the next one learns from the replicas that run.
    """

    def __init__(self) -> None:
        # The nodes of each service, the latest last; the services that were seen last are last.
        self._nodes: OrderedDict[tuple[str, str, str], list[str]] = OrderedDict()

    def saw(self, pod: Guest) -> None:
        """Take a pod that may have started on a node."""
        node, service = pod.spec.get("nodeName"), _inference_of(pod.metadata)
        if service is None or not isinstance(node, str) or not pod.status.get("startTime"):
            return
        known = self._nodes.setdefault(service, [])
        if node in known:
            known.remove(node)
        self._nodes[service] = [*known, node][-_MOST_NODES:]
        self._nodes.move_to_end(service)
        if len(self._nodes) > _MOST_SERVICES:
            self._nodes.popitem(last=False)

    def of(self, pod: ObjectMeta) -> list[str]:
        """The nodes of the pod's service, the latest first; none unless it is inference."""
        service = _inference_of(pod)
        return [] if service is None else self._nodes.get(service, [])[::-1]


def _inference_of(pod: ObjectMeta) -> tuple[str, str, str] | None:
    """The service of an inference pod; None for any other pod."""
    return service_of(pod) if pod.annotations.get(names.WORKLOAD) == "Inference" else None
