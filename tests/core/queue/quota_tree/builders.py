"""Builders of quotas, trees and loans."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.tree import GPUS, Capacity, Tree, tree_of


def make_quota(
    name: str, *, guaranteed: int | None = None, models: Mapping[str, int] | None = None, **spec: Any
) -> GPUQuota:
    """A quota of the namespace of its name, unless `spec` names others or `parents_only` is set."""
    if spec.pop("parents_only", False) is False and not {"namespaces", "users", "projects"} & spec.keys():
        spec["namespaces"] = [name]
    if guaranteed is not None or models:
        amounts: dict[str, Any] = {} if guaranteed is None else {"gpus": guaranteed}
        spec["guaranteed"] = amounts | ({"models": dict(models)} if models else {})
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota)


def make_tree(*quotas: GPUQuota, gpus: int | None = None, usable: int | None = None) -> Tree:
    """The tree of these quotas in a cluster with so many GPUs."""
    if gpus is None:
        return tree_of(quotas)
    return tree_of(
        quotas,
        capacity=Capacity(known={GPUS: gpus * 1000}, usable={GPUS: (gpus if usable is None else usable) * 1000}),
    )


def make_loans(
    *quotas: GPUQuota, gpus: int, running: Mapping[str, tuple[str, float]], waiting: Mapping[str, tuple[str, float]]
) -> Loans:
    """The loans of jobs, each with its namespace and GPUs."""
    counted = [
        Counted(uid=uid, subject=Subject(namespace=namespace, user="ada"), milli=int(amount * 1000), queued=queued)
        for jobs, queued in ((running, False), (waiting, True))
        for uid, (namespace, amount) in jobs.items()
    ]
    return loans_of(
        make_tree(*quotas, gpus=gpus),
        counted=counted,
        pods=(),
        quota_of=lambda subject: quota_of(quotas, subject=subject),
        recent={},
    )
