"""A stand-in for Grove's operator, which cannot be had here.

It makes of a PodCliqueSet what Grove's code makes of one, as far as a scheduler sees it: names, labels, gates, order.
It rolls nothing out, and repairs nothing.
"""

import asyncio
from copy import deepcopy
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS
from dovetail.jobs.guests.gangs import POD_GANGS
from tests.cluster.jobs import FOR_EVER, PATIENCE_SECONDS
from tests.cluster.test_guests import Guests

GPU: Final = {names.REQUEST: "1", names.RUN_SECONDS: str(FOR_EVER)}
_GATE: Final = {"name": "grove.io/podgang-pending-creation"}


class GroveStandIn:
    """Grove's operator for one PodCliqueSet, each of whose pods requests a GPU from the queue."""

    def __init__(self, guests: Guests, body: dict[str, Any]) -> None:
        self._guests = guests
        self._template = body["spec"]["template"]
        self._name = f"{body['metadata']['name']}-0"

    async def begin(self) -> str:
        """Create the pods, then the PodGangs, and open Grove's gate of the first one's. Returns that one's name."""
        for gang, cliques in self._gangs().items():
            for name, clique in cliques.items():
                for index in range(clique["spec"]["replicas"]):
                    await self._pod(name, clique=clique, index=index, gang=gang)
        for gang, cliques in self._gangs().items():
            groups = [
                {
                    "name": name,
                    "minReplicas": clique["spec"].get("minAvailable", clique["spec"]["replicas"]),
                    "podReferences": await self._references(name),
                }
                for name, clique in cliques.items()
            ]
            await self._guests.make(
                {"metadata": {"name": gang}, "spec": {"podgroups": groups}}, resource=POD_GANGS.resource
            )
        await self._open(self._name)
        return self._name

    async def let_scaled(self, gang: str) -> None:
        """Open Grove's gate of the pods of a gang that builds on the first one, which is scheduled."""
        await self._open(gang)

    def gang_of(self, pod: Pod) -> str:
        """The PodGang of a pod."""
        return pod.metadata.labels.get("grove.io/podgang", "")

    async def until_told(self, gang: str, *, status: str) -> dict[str, Any]:
        """The condition of a PodGang that says whether its pods are scheduled, once it says so."""
        client, namespace = self._guests.client, self._guests.namespace
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found = await client.get(POD_GANGS.resource, name=gang, as_type=dict[str, Any], namespace=namespace)
                for each in found.get("status", {}).get("conditions", []):
                    if (each["type"], each["status"]) == ("Scheduled", status):
                        condition: dict[str, Any] = each
                        return condition
                await asyncio.sleep(0.05)

    def _gangs(self) -> dict[str, dict[str, dict[str, Any]]]:
        """The PodCliques of each PodGang: the first has one replica of each scaling group, the others have one each."""
        cliques = {clique["name"]: clique for clique in self._template["cliques"]}
        groups = self._template.get("podCliqueScalingGroups", [])
        grouped = {name for group in groups for name in group["cliqueNames"]}
        found = {self._name: {f"{self._name}-{name}": each for name, each in cliques.items() if name not in grouped}}
        for group in groups:
            least = group.get("minAvailable", 1)
            for replica in range(group.get("replicas", 1)):
                where = f"{self._name}-{group['name']}-{replica}"
                own = {f"{where}-{name}": cliques[name] for name in group["cliqueNames"]}
                found.setdefault(self._name if replica < least else where, {}).update(own)
        return found

    async def _pod(self, name: str, *, clique: dict[str, Any], index: int, gang: str) -> None:
        labels = {
            names.LABEL_QUEUE: "default", "grove.io/podclique": name, "grove.io/podgang": gang,
            "grove.io/podclique-pod-index": str(index),
        }  # fmt: skip
        spec = {**deepcopy(clique["spec"]["podSpec"]), "schedulingGates": [_GATE], "restartPolicy": "Always"}
        metadata = {"generateName": f"{name}-", "labels": labels, "annotations": GPU}
        await self._guests.make({"metadata": metadata, "spec": spec}, resource=PODS)

    async def _references(self, clique: str) -> list[dict[str, str]]:
        found = [
            pod.metadata for pod in await self._guests.pods() if pod.metadata.labels.get("grove.io/podclique") == clique
        ]
        return [{"namespace": meta.namespace, "name": meta.name} for meta in found]

    async def _open(self, gang: str) -> None:
        for pod in await self._guests.pods():
            if self.gang_of(pod) == gang:
                left = [{"name": gate.name} for gate in pod.spec.scheduling_gates if gate.name != _GATE["name"]]
                await self._guests.client.patch(
                    PODS, name=pod.metadata.name, patch={"spec": {"schedulingGates": left}}, as_type=Pod,
                    namespace=self._guests.namespace,
                )  # fmt: skip
