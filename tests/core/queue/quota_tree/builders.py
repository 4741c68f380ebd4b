"""Builders of quotas, trees and loans."""

from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.resources import GPUS, MEMORY
from dovetail.queue.quota_tree.tree import Capacity, Tree
from dovetail.queue.quota_tree.tree_builder import tree_of


def make_quota(
    name: str,
    *,
    guaranteed: int | None = None,
    models: Mapping[str, int] | None = None,
    memory: str | None = None,
    **spec: Any,
) -> GPUQuota:
    """A quota of the namespace of its name, unless `spec` names others or `parents_only` is set."""
    if spec.pop("parents_only", False) is False and not {"namespaces", "users", "projects"} & spec.keys():
        spec["namespaces"] = [name]
    said: dict[str, Any] = {"gpus": guaranteed, "models": models, "memory": memory}
    if amounts := {name: amount for name, amount in said.items() if amount is not None}:
        spec["guaranteed"] = amounts
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota)


def make_tree(
    *quotas: GPUQuota,
    gpus: int | None = None,
    usable: int | None = None,
    each_gib: int = 80,
    models: Iterable[str] = (),
) -> Tree:
    """The tree of these quotas in a cluster with so many GPUs of `each_gib` GiB, and as many of each model."""
    if gpus is None:
        return tree_of(quotas)
    return tree_of(
        quotas,
        capacity=Capacity(
            known=_amounts(gpus, each_gib=each_gib, models=models),
            usable=_amounts(gpus if usable is None else usable, each_gib=each_gib, models=models),
        ),
    )


def _amounts(gpus: int, *, each_gib: int, models: Iterable[str]) -> dict[str, int]:
    return {GPUS: gpus * 1000, MEMORY: gpus * each_gib * 1024} | dict.fromkeys(models, gpus * 1000)


def make_loans(
    *quotas: GPUQuota,
    gpus: int,
    running: Mapping[str, tuple[str, float]],
    waiting: Mapping[str, tuple[str, float]],
    gib: Mapping[str, int] = MappingProxyType({}),
    models: Mapping[str, str] = MappingProxyType({}),
    firm: Container[str] = (),
) -> Loans:
    """The loans of jobs, each with its namespace and GPUs.

    `gib` is the device memory of jobs without 80 GiB a GPU, `models` are those that jobs request, and the jobs `firm`
    may not be preempted.
    """
    counted = [
        Counted(
            uid=uid,
            subject=Subject(namespace=namespace, user="ada"),
            milli=int(amount * 1000),
            memory_mib=gib.get(uid, int(amount * 80)) * 1024,
            queued=queued,
            model=models.get(uid, ""),
            preemptible=uid not in firm,
        )
        for jobs, queued in ((running, False), (waiting, True))
        for uid, (namespace, amount) in jobs.items()
    ]
    return loans_of(
        make_tree(*quotas, gpus=gpus, models=set(models.values())),
        counted=counted,
        pods=(),
        quota_of=lambda subject: quota_of(quotas, subject=subject),
        recent={},
    )
