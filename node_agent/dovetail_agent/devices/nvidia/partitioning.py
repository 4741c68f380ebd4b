"""Partitions a GPU in MIG mode through NVML: which instances it can have, and the change to others.

A MIG device is a GPU instance (memory and compute slices) with a compute instance on all of them. Untested on a GPU:
the tests run it on a stand-in for NVIDIA's library.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from dovetail.gpu import mig
from dovetail.gpu.geometry import Place, Slot, arrange, described
from dovetail_agent.devices.driver import CallRefused
from dovetail_agent.devices.library_calls import Caller

# More than any GPU has placements of one profile.
_MOST_PLACEMENTS: Final = 32
_PREFIX: Final = "MIG "


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile of GPU instances: its name, the driver's id, its compute slices, and where its instances fit."""

    id: int
    slices: int
    slot: Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class _Existing:
    """A GPU instance."""

    handle: Any
    profile: Profile
    place: Place


def profiles_of(card: Any, *, ask: Caller) -> tuple[Profile, ...]:
    """The profiles that a GPU in MIG mode can have; none where the driver does not name them.

    Raises `CardLost` and `LibraryGone`.
    """
    return tuple(_profiles(card, ask=ask))


def _profiles(card: Any, *, ask: Caller) -> Iterator[Profile]:
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        # The second version has the name; a GPU supports some of the numbers.
        info = ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, args=(card, number))
        if info is None:
            continue
        name = info.name if isinstance(info.name, str) else info.name.decode(errors="replace")
        profile = mig.normalised(name.removeprefix(_PREFIX))
        places = _placements(card, profile=info.id, ask=ask)
        if profile is None or not places or not info.instanceCount:
            continue
        starts = tuple(sorted(place.start for place in places))
        slot = Slot(profile=profile, size=places[0].size, starts=starts, count=info.instanceCount)
        yield Profile(id=info.id, slices=info.sliceCount, slot=slot)


def _placements(card: Any, *, profile: int, ask: Caller) -> list[Any]:
    found = (pynvml.c_nvmlGpuInstancePlacement_t * _MOST_PLACEMENTS)()
    count = ctypes.c_uint(_MOST_PLACEMENTS)
    done = ask(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, args=(card, profile, found, ctypes.byref(count)))
    return [] if done is None else list(found[: count.value])


def repartition(card: Any, *, wanted: Sequence[str], ask: Caller) -> None:
    """Give an idle GPU instances of the `wanted` profiles; does nothing if it has exactly these.

    If an instance cannot be created, the GPU gets its earlier ones back. Raises `LibraryError` with the reason.
    """
    profiles = profiles_of(card, ask=ask)
    places = arrange(tuple(sorted(wanted)), slots=tuple(profile.slot for profile in profiles))
    if places is None:
        said = f"{described(wanted)} do not fit on the GPU together"
        raise CallRefused("nvmlDeviceGetGpuInstancePossiblePlacements", said=said)
    before = list(_existing(card, profiles=profiles, ask=ask))
    if sorted(each.place.profile for each in before) == sorted(wanted) and all(
        _is_whole(each, ask=ask) for each in before
    ):
        return
    ids = {profile.slot.profile: profile for profile in profiles}
    try:
        _destroy(before, ask=ask)
        _create(card, places=[(ids[place.profile], place) for place in places], ask=ask)
    except CallRefused:
        _restore(card, before=before, profiles=profiles, ask=ask)
        raise


def _restore(card: Any, *, before: Sequence[_Existing], profiles: Sequence[Profile], ask: Caller) -> None:
    """Give the GPU its earlier instances back, as far as the driver allows. Raises `CardLost` and `LibraryGone`."""
    earlier = {each.place: each.profile for each in before}
    there = list(_existing(card, profiles=profiles, ask=ask))
    try:
        _destroy([each for each in there if each.place not in earlier], ask=ask)
        kept = {each.place for each in _existing(card, profiles=profiles, ask=ask)}
        missing = [(profile, place) for place, profile in earlier.items() if place not in kept]
        _create(card, places=missing, ask=ask)
        for each in _existing(card, profiles=profiles, ask=ask):
            if not _is_whole(each, ask=ask):
                _add_compute(each.handle, slices=each.profile.slices, ask=ask)
    except CallRefused:
        return  # the first refusal is reported, and the report shows the instances that are there


def _existing(card: Any, *, profiles: Iterable[Profile], ask: Caller) -> Iterator[_Existing]:
    for profile in profiles:
        found = (pynvml.c_nvmlGpuInstance_t * profile.slot.count)()
        count = ctypes.c_uint(profile.slot.count)
        ask.insist(pynvml.nvmlDeviceGetGpuInstances, args=(card, profile.id, found, ctypes.byref(count)))
        for handle in found[: count.value]:
            at = ask.insist(pynvml.nvmlGpuInstanceGetInfo, args=(handle,)).placement
            place = Place(profile=profile.slot.profile, start=at.start, size=at.size)
            yield _Existing(handle=handle, profile=profile, place=place)


def _destroy(instances: Iterable[_Existing], *, ask: Caller) -> None:
    """Destroy compute instances, then their GPU instance. The driver refuses this for one that a process uses."""
    for each in instances:
        for compute in _compute_instances(each.handle, ask=ask):
            ask.insist(pynvml.nvmlComputeInstanceDestroy, args=(compute,))
        ask.insist(pynvml.nvmlGpuInstanceDestroy, args=(each.handle,))


def _create(card: Any, *, places: Iterable[tuple[Profile, Place]], ask: Caller) -> None:
    for profile, place in places:
        at = pynvml.c_nvmlGpuInstancePlacement_t(place.start, place.size)
        made = ask.insist(pynvml.nvmlDeviceCreateGpuInstanceWithPlacement, args=(card, profile.id, ctypes.byref(at)))
        _add_compute(made, slices=profile.slices, ask=ask)


def _add_compute(instance: Any, *, slices: int, ask: Caller) -> None:
    """Create the compute instance that has all compute slices of a GPU instance."""
    for info in _compute_profiles(instance, ask=ask):
        if info.sliceCount == slices:
            ask.insist(pynvml.nvmlGpuInstanceCreateComputeInstance, args=(instance, info.id))
            return
    call: Callable[..., Any] = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
    raise CallRefused(call.__name__, said=f"no compute instance has all {slices} slices of the GPU instance")


def _is_whole(instance: _Existing, *, ask: Caller) -> bool:
    """Whether a GPU instance has exactly one compute instance."""
    return len(list(_compute_instances(instance.handle, ask=ask))) == 1


def _compute_profiles(instance: Any, *, ask: Caller) -> Iterator[Any]:
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = ask(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, args=(instance, number, shared))
        if info is not None:
            yield info


def _compute_instances(instance: Any, *, ask: Caller) -> Iterator[Any]:
    for info in _compute_profiles(instance, ask=ask):
        found = (pynvml.c_nvmlComputeInstance_t * max(1, info.instanceCount))()
        count = ctypes.c_uint(len(found))
        ask.insist(pynvml.nvmlGpuInstanceGetComputeInstances, args=(instance, info.id, found, ctypes.byref(count)))
        yield from found[: count.value]
