"""Changes of a quota's spec: merge patches, and what the API server or the tree refuses of their result. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail.api.gpuquota import GPUQuota, GPUQuotaSpec
from dovetail.decoding import convert
from dovetail.formats.durations import moment
from dovetail.queue.quota_tree.guarantee_windows import zone_named
from dovetail.queue.quota_tree.parents import circle_of

# A DNS subdomain, as Kubernetes wants names of objects.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253


def patch_of(before: GPUQuota | None, *, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes as a merge patch of the spec.

    Where a guarantee names GPUs alone, lifting that removes it as a whole: an empty one would guarantee 0 GPUs.
    """
    patch = dict(changes)
    kept = None if before is None else before.spec.guaranteed
    names_more = kept is not None and (kept.memory is not None or kept.models)
    if patch.get("guaranteed") == {"gpus": None} and not names_more:
        patch["guaranteed"] = None
    return patch


def changed(name: str, *, before: GPUQuota | None, patch: Mapping[str, Any]) -> GPUQuota:
    """The quota as it will be after the patch. Raises `UnreadableError`."""
    return convert({"metadata": {"name": name}, "spec": merged(before, patch=patch)}, as_type=GPUQuota)


def merged(before: GPUQuota | None, *, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The spec after a merge patch (RFC 7396), as it is written."""
    return _merged({} if before is None else msgspec.to_builtins(before.spec), patch=patch)


def _merged(value: Any, *, patch: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(value) if isinstance(value, dict) else {}
    for field, new in patch.items():
        found[field] = _merged(found.get(field), patch=new) if isinstance(new, dict) else new
    return {field: each for field, each in found.items() if each is not None}


def problem_of_parent(quota: GPUQuota, *, others: Mapping[str, GPUQuota]) -> str:
    """Why its parent cannot be one, in a sentence that begins with the parent's name; empty if it can.

    A parent that the change leaves as it is may be wrong.
    """
    name, parent = quota.metadata.name, quota.spec.parent
    if parent is None or (name in others and others[name].spec.parent == parent):
        return ""
    known = {**others, name: quota}
    if parent not in known:
        return f"{parent}: there is no such GPUQuota: create it first"
    if known[parent].spec.per != "Together":
        return f"{parent}: it counts each {known[parent].spec.per.lower()} by itself (per), so it can be no parent"
    if circle := circle_of(name, quotas=known):
        return f"{parent}: the parents would form a circle ({' > '.join(circle)})"
    return ""


def problem_of(quota: GPUQuota) -> str:
    """What the API server refuses of a quota's fields together, in a sentence; empty if nothing."""
    spec, name = quota.spec, quota.metadata.name
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST_NAME:
        return f"metadata.name must be up to {_LONGEST_NAME} of a-z, 0-9, '-' and '.', such as team-a"
    if spec.per != "Together" and (spec.parent is not None or spec.guaranteed is not None):
        return f"spec.per {spec.per}: must be Together with a parent or a guarantee, which are for all of them"
    if spec.parent == name:
        return f"spec.parent {spec.parent}: must be another quota (the path would be {spec.parent} > {spec.parent})"
    guaranteed = None if spec.guaranteed is None else spec.guaranteed.gpus
    most = spec.limits.gpus
    if guaranteed is not None and most is not None and guaranteed > most:
        return (
            f"spec.guaranteed.gpus {guaranteed}: must not be above the limit of {most} GPUs: raise the limit or lower "
            "the guarantee"
        )
    return _problem_of_windows(spec) or _problem_of_reservations(spec)


def _problem_of_windows(spec: GPUQuotaSpec) -> str:
    """The same of its guarantee by the calendar and of its reserve."""
    if spec.per != "Together" and (spec.guarantee_windows or spec.reserve is not None):
        return f"spec.per {spec.per}: must be Together with guaranteeWindows or a reserve, which are for all of them"
    most = spec.limits.gpus
    for index, each in enumerate(spec.guarantee_windows):
        path = f"spec.guaranteeWindows[{index}]"
        if most is not None and each.gpus > most:
            return (
                f"{path}.gpus {each.gpus}: must not be above the limit of {most} GPUs: raise the limit or lower the "
                "window"
            )
        if zone_named(each.time_zone) is None:
            return (
                f"{path}.timeZone {each.time_zone}: there is no such time zone; name one such as Europe/Berlin or UTC"
            )
    return _problem_of_forecast(spec) or _problem_of_reserve(spec)


def _problem_of_forecast(spec: GPUQuotaSpec) -> str:
    """The same of the forecast of its demand."""
    said, most = spec.forecast, spec.limits.gpus
    if said is None:
        return ""
    if spec.per != "Together":
        return f"spec.per {spec.per}: must be Together with a forecast, which is for all of them"
    if most is not None and said.gpus > most:
        return (
            f"spec.forecast.gpus {said.gpus}: must not be above the limit of {most} GPUs: raise the limit or lower the "
            "forecast"
        )
    if zone_named(said.time_zone) is None:
        return f"spec.forecast.timeZone {said.time_zone}: there is no such time zone; name one such as Europe/Berlin"
    return ""


def _problem_of_reserve(spec: GPUQuotaSpec) -> str:
    """The same of its reserve."""
    reserve = spec.reserve
    if reserve is None:
        return ""
    if not spec.guarantee_windows and (spec.guaranteed is None or spec.guaranteed.gpus is None):
        return "spec.reserve: is a part of the guarantee: set guaranteed.gpus or guaranteeWindows"
    if reserve.gpus % reserve.gpus_per_replica:
        return (
            f"spec.reserve.gpus {reserve.gpus}: must be a multiple of gpusPerReplica {reserve.gpus_per_replica}: it is "
            "for whole replicas"
        )
    return ""


def _problem_of_reservations(spec: GPUQuotaSpec) -> str:
    """The same of its advance reservations."""
    if not spec.advance_reservations:
        return ""
    if spec.per != "Together":
        return f"spec.per {spec.per}: must be Together with spec.advanceReservations, which keep GPUs for all of them"
    if not spec.names_anyone:
        return "spec.advanceReservations: namespaces, users or projects must say for whom GPUs are kept"
    for index, each in enumerate(spec.advance_reservations):
        if moment(each.start_time) >= moment(each.end_time):
            return (
                f"spec.advanceReservations[{index}].endTime {each.end_time}: must be after startTime {each.start_time}"
            )
    return ""
