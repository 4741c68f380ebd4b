"""Which quota is above which: the parents that count, and why others do not. Pure."""

from collections.abc import Container, Iterator, Mapping

from dovetail.api.gpuquota import GPUQuota


def acts_as_parent_alone(quota: GPUQuota, *, parents: Container[str | None]) -> bool:
    """Whether a quota applies only to what is below it: it names no one, and others name it as their parent."""
    return quota.metadata.name in parents and not quota.spec.names_anyone and quota.spec.per == "Together"


def parent_of(name: str, *, quotas: Mapping[str, GPUQuota]) -> str | None:
    """The parent that counts: none where it is missing, counts each subject by itself, or is part of a circle."""
    parent = quotas[name].spec.parent
    if parent is None or parent not in quotas or quotas[parent].spec.per != "Together":
        return None
    return None if circle_of(name, quotas=quotas) else parent


def circle_of(name: str, *, quotas: Mapping[str, GPUQuota]) -> list[str]:
    """The circle that the quota itself is part of, from itself to itself; empty where it is in none."""
    path = [name]
    while (parent := quotas[path[-1]].spec.parent) is not None and parent in quotas:
        if parent == name:
            return [*path, name]
        if parent in path:
            return []
        path.append(parent)
    return []


def ancestors_of(name: str, *, quotas: Mapping[str, GPUQuota]) -> Iterator[str]:
    """The quotas above one, the nearest first."""
    while (parent := parent_of(name, quotas=quotas)) is not None:
        yield parent
        name = parent
