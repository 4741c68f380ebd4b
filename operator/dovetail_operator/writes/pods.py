"""Writes about the pods of a job before they end: the notice of a preemption, and the record in their budgets.

The pods of a GPUJob end by the suspension of its batch Job, which asks no PodDisruptionBudget. Two acts that both see
that one more pod may end would break a budget together, also if one of them is a drain by `kubectl`. So each takes its
pods off what the budget allows, as the eviction API does, with the version of the budget that it has read, and ends
them only if that write succeeds.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.resources import PODDISRUPTIONBUDGETS, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.pods.disruption_budgets import pods_covered_by, refusing_budget

# When a refused end is tried again, and how often a record is tried on a budget that others change meanwhile.
RETRY_SECONDS: Final = 1.0
_TRIES: Final = 10


class DisruptionRefusedError(Exception):
    """A PodDisruptionBudget does not let these pods end now, or has just changed. `budget` is its name."""

    def __init__(self, budget: str) -> None:
        super().__init__(f"PodDisruptionBudget {budget} does not let so many of its pods end now")
        self.budget = budget


async def announce_preemption(client: Client, *, pod: Pod, at: str | None) -> None:
    """Annotate the pod with the time when it ends, or remove it (None).

    A deleted pod is no error.
    """
    meta = pod.metadata
    patch = {"metadata": {"uid": meta.uid, "annotations": {names.PREEMPTING_AT: at}}}
    try:
        # Through the status subresource: the right to patch a pod itself includes the right to change its image.
        await client.patch(
            PODS, name=meta.name, patch=patch, as_type=Pod, namespace=meta.namespace, subresource="status"
        )
    except (NotFound, Conflict):
        return


async def record_disruption(
    client: Client, *, pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget], at: str
) -> None:
    """Take the pods off what each budget that covers them allows. `budgets` are those of the pods' namespace.

    Pods that are recorded already cost nothing, so it can be repeated after a restart. Raises `DisruptionRefusedError`;
    what it has recorded by then counts until the disruption controller forgets it.
    """
    if refusing := refusing_budget(pods, budgets=budgets):
        raise DisruptionRefusedError(refusing)
    for budget in budgets:
        if pods_covered_by(budget, pods=pods):
            # Without the budget nothing forbids the ends.
            with suppress(NotFound):
                await _record(client, pods=pods, budget=budget, at=at)


async def _record(client: Client, *, pods: Sequence[Pod], budget: PodDisruptionBudget, at: str) -> None:
    """Record the pods in one budget. Raises `DisruptionRefusedError`, and `NotFound` if it does not exist any more."""
    for _ in range(_TRIES):
        if refusing := refusing_budget(pods, budgets=[budget]):
            raise DisruptionRefusedError(refusing)
        try:
            await _write(client, pods=pods_covered_by(budget, pods=pods), budget=budget, at=at)
        except Conflict:
            # The jobs that end together for one are recorded at the same time.
            budget = await client.get(
                PODDISRUPTIONBUDGETS,
                name=budget.metadata.name,
                as_type=PodDisruptionBudget,
                namespace=budget.metadata.namespace,
            )
        else:
            return
    raise DisruptionRefusedError(budget.metadata.name)


async def _write(client: Client, *, pods: Sequence[Pod], budget: PodDisruptionBudget, at: str) -> None:
    meta = budget.metadata
    patch = {
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {
            "disruptionsAllowed": budget.status.disruptions_allowed - len(pods),
            "disruptedPods": {pod.metadata.name: at for pod in pods},
        },
    }
    await client.patch(
        PODDISRUPTIONBUDGETS,
        name=meta.name,
        patch=patch,
        as_type=PodDisruptionBudget,
        namespace=meta.namespace,
        subresource="status",
    )
