"""Checks of Pod Security, which refuses pods that Dovetail's policies do not. Pure."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from dovetail import names
from dovetail.answers.doctor import CheckResult
from dovetail.api.builtin import Namespace
from dovetail.cluster.picture import Picture, Unseen
from dovetail.config.settings import Settings
from dovetail.query.doctor.findings import unknown

CHECK: Final = "pod-security"
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_ENOUGH: Final = frozenset({"baseline", "restricted"})
# Of many namespaces the first are named.
_NAMED: Final = 10


def judge(picture: Picture, *, settings: Settings) -> Iterator[CheckResult]:
    """Report namespaces with GPU pods or GPUJobs that allow privileged pods, which see all devices.

    An API server may enforce a level by its own configuration, which no label shows: so this is a warning.
    """
    resources, jobs, namespaces = picture.resources_asked, picture.job_namespaces, picture.namespaces
    if isinstance(resources, Unseen):
        yield unknown(CHECK, unseen=resources)
    elif isinstance(jobs, Unseen):
        yield unknown(CHECK, unseen=jobs)
    elif isinstance(namespaces, Unseen):
        yield unknown(CHECK, unseen=namespaces)
    else:
        devices = {*names.MANAGED_RESOURCES, *settings.vendors.resources}
        concerned = jobs | {name for name, asked in resources.items() if asked & devices}
        yield _judged(concerned - {"kube-system", picture.release, *settings.exempt_namespaces}, namespaces=namespaces)


def _judged(concerned: AbstractSet[str], *, namespaces: Sequence[Namespace]) -> CheckResult:
    levels = {each.metadata.name: each.metadata.labels.get(ENFORCE, "") for each in namespaces}
    lax = sorted(name for name in concerned if levels.get(name, "") not in _ENOUGH)
    if not lax:
        return CheckResult(level="ok", check=CHECK, message="every namespace with GPU pods enforces at least baseline")
    shown = ", ".join(lax[:_NAMED]) + (f" and {len(lax) - _NAMED} more" if len(lax) > _NAMED else "")
    message = f"{shown}: a privileged pod or a host path there sees every card, since nothing enforces baseline"
    fix = f"kubectl label namespace {lax[0]} {ENFORCE}=baseline"
    return CheckResult(level="warning", check=CHECK, message=message, fix=fix)
