"""Requests by resources of other systems: whole GPUs, HAMi's and Volcano's parts of them, MIG instances. Pure.

HAMi's scheduler extender counts its resources itself (https://project-hami.io/docs/userguide/configure): `gpumem` in
MiB and `gpumem-percentage` of each GPU, all of it where a container says neither, and `gpucores` in percent of the
compute, without a limit where a container does not say it. Volcano's are the same under its own names.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dovetail.api.builtin import Container, Pod
from dovetail.api.reasons import start as says
from dovetail.formats.quantities import QuantityError, milli, whole
from dovetail.gpu import mig
from dovetail.gpu.device_plugins import MANAGED_VENDOR, Vendors, is_mig
from dovetail.gpu.request import MAX_COUNT, MAX_MEMORY_MIB, WHOLE_MILLI, GPURequest, RequestError
from dovetail.pods.containers import every_container, requested
from dovetail.pods.errors import quantity_error

_ALL_PERCENT: Final = 100
_MILLI_OF_PERCENT: Final = WHOLE_MILLI // _ALL_PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a container asks for in the words of another system.

    words     these words, such as `nvidia.com/gpu: 1, nvidia.com/gpumem: 3000`
    taint     the resource by whose name nodes for it may be tainted
    request   the same as a request to Dovetail
    in_turns  whether it shares all the compute of its devices with others
    """

    words: str
    taint: str
    request: GPURequest
    in_turns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The resources by which a system asks for parts of GPUs."""

    system: str
    count: str
    memory: str
    percent: str
    cores: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.count, self.memory, self.percent, self.cores


_HAMI: Final = _Parts(
    system="HAMi",
    count="nvidia.com/gpu",
    memory="nvidia.com/gpumem",
    percent="nvidia.com/gpumem-percentage",
    cores="nvidia.com/gpucores",
)
_VOLCANO: Final = _Parts(
    system="Volcano",
    count="volcano.sh/vgpu-number",
    memory="volcano.sh/vgpu-memory",
    percent="volcano.sh/vgpu-memory-percentage",
    cores="volcano.sh/vgpu-cores",
)
_SYSTEMS: Final = (_HAMI, _VOLCANO)
# HAMi's priority of a task on its GPU, for which Dovetail has no counterpart.
_PRIORITY: Final = "nvidia.com/priority"
# What no node has but by these systems; a pod with one of them waits for ever where they do not run.
FOREIGN: Final = (*_HAMI.names[1:], _PRIORITY, *_VOLCANO.names)


def asked_of(pod: Pod, *, vendors: Vendors) -> dict[str, Asked]:
    """What each container asks for, by container. Raises `RequestError`."""
    asked: dict[str, Asked] = {}
    for container in every_container(pod.spec):
        found = list(_of_container(container, pod=pod, vendors=vendors))
        if len(found) > 1:
            raise RequestError(
                " and ".join(each.words for each in found), field=f"container {container.name}",
                problem=says.ONE_KIND(), example=f"{found[0].words} alone",
            )  # fmt: skip
        if found:
            asked[container.name] = found[0]
    kinds = {(each.taint, each.request.mig): each.words for each in asked.values()}
    if len(kinds) > 1:
        raise RequestError(
            " and ".join(sorted(kinds.values())), field="resources", problem=says.ONE_KIND(),
            example=f"{min(kinds.values())} alone",
        )  # fmt: skip
    return asked


def asked_of_hami(pod: Pod) -> list[Asked]:
    """What each container asks for as HAMi itself reads it, its priority aside. Raises `RequestError`."""
    containers = ((each, _said(each, names=_HAMI.names, pod=pod)) for each in every_container(pod.spec))
    return [_part(said, system=_HAMI, container=container) for container, said in containers if said]


def is_foreign(resource: str, *, vendors: Vendors) -> bool:
    """Whether a container that names the resource asks another system for GPUs."""
    return resource in vendors.resources or resource in FOREIGN or is_mig(resource)


def refuse_foreign(pod: Pod) -> None:
    """Refuse resources that only HAMi or Volcano could give, in a pod that asks Dovetail. Raises `RequestError`."""
    for container in every_container(pod.spec):
        for name in FOREIGN:
            if amount := _amount(container, resource=name, pod=pod):
                raise RequestError(
                    f"{name}: {amount}", field=f"resources of container {container.name}",
                    problem=says.NO_NODE_HAS(),
                    example="the request to Dovetail alone, such as 8G,0.5, and no such resource",
                )  # fmt: skip


def _of_container(container: Container, *, pod: Pod, vendors: Vendors) -> Iterator[Asked]:
    if _PRIORITY in container.resources.limits:
        raise RequestError(
            f"{_PRIORITY}: {container.resources.limits[_PRIORITY]}", field=f"resources of container {container.name}",
            problem=says.HAMI_PRIORITY(),
            example="nothing there, or dovetail.dev/gpu-priority for the weight in turns",
        )  # fmt: skip
    said = _said(container, names=(*vendors.resources, *FOREIGN), pod=pod)
    for system in _SYSTEMS:
        parts = {name: amount for name, amount in said.items() if name in system.names}
        if parts.keys() - {_HAMI.count}:
            yield _part(parts, system=system, container=container)
            said = {name: amount for name, amount in said.items() if name not in parts}
    for resource, count in said.items():
        request = GPURequest(count=count, vendor=vendors.vendor_of(resource))
        yield Asked(words=f"{resource}: {count}", taint=resource, request=request)
    for resource in filter(is_mig, container.resources.limits):
        count, profile = _amount(container, resource=resource, pod=pod), mig.profile_of(resource)
        if count and profile:
            words, request = f"{resource}: {count}", GPURequest(count=count, mig=profile)
            yield Asked(words=words, taint=_HAMI.count, request=request)


def _said(container: Container, *, names: Iterable[str], pod: Pod) -> dict[str, int]:
    """The amounts of these resources that a container requests, without zeros."""
    return {name: amount for name in names if (amount := _amount(container, resource=name, pod=pod))}


def _part(said: Mapping[str, int], *, system: _Parts, container: Container) -> Asked:
    """HAMi's or Volcano's amounts as a request: whole GPUs where they leave no memory to others."""
    memory, percent, cores = (said.get(name, 0) for name in (system.memory, system.percent, system.cores))
    words = ", ".join(f"{name}: {amount}" for name, amount in said.items())
    problem = (
        says.BOTH_SAY_MEMORY(one=system.memory, other=system.percent) if memory and percent
        else says.PERCENT_BEYOND(resource=system.percent) if percent > _ALL_PERCENT
        else says.PERCENT_BEYOND(resource=system.cores) if cores > _ALL_PERCENT
        else says.AT_MOST(resource=system.memory, most=MAX_MEMORY_MIB) if memory > MAX_MEMORY_MIB
        else None
    )  # fmt: skip
    if problem is not None:
        raise RequestError(
            words, field=f"resources of container {container.name}", problem=problem,
            example=f"{system.memory}: 3000 and {system.cores}: 30",
        )  # fmt: skip
    whole_devices = GPURequest(count=said.get(system.count, 1), vendor=MANAGED_VENDOR)
    if not memory and percent in {0, _ALL_PERCENT}:
        return Asked(words=words, taint=_HAMI.count, request=whole_devices)
    request = GPURequest(
        count=whole_devices.count,
        share_milli=cores * _MILLI_OF_PERCENT or WHOLE_MILLI,
        memory_mib=memory or None,
        memory_percent=percent or None,
        vendor=MANAGED_VENDOR,
    )
    return Asked(words=words, taint=_HAMI.count, request=request, in_turns=not cores)


def _amount(container: Container, *, resource: str, pod: Pod) -> int:
    """The amount of a resource that a container requests. Raises `RequestError` for one that is no whole number."""
    text = requested(container, resource=resource)
    try:
        amount = whole(text)
    except QuantityError as error:
        raise quantity_error(pod.spec, text=error.text) from error
    most = MAX_MEMORY_MIB if resource in {_HAMI.memory, _VOLCANO.memory} else MAX_COUNT
    if amount > most or milli(text) != WHOLE_MILLI * amount:
        row = says.WHOLE_AT_MOST if resource in FOREIGN and resource != _VOLCANO.count else says.WHOLE_GPUS_AT_MOST
        raise RequestError(
            str(text), field=f"{resource} of container {container.name}",
            problem=row(most=most), example="2",
        )  # fmt: skip
    return max(0, amount)
