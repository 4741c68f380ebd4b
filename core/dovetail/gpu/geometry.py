"""Which instances fit on a GPU together, by the slots that its driver reports. Pure.

An instance takes consecutive memory slices of its GPU, from one of the starts of its profile. Instances that do not
overlap fit together: the driver offers only starts at which the compute slices suffice too.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from msgspec import Meta, Struct


class Slot(Struct, frozen=True, kw_only=True):
    """Where instances of a profile fit on a GPU: `size` memory slices from one of the `starts`."""

    profile: Annotated[str, Meta(description="The profile, such as 1g.10gb.", max_length=32)]
    size: Annotated[int, Meta(description="How many of the GPU's memory slices an instance takes.", ge=1)]
    starts: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...],
        Meta(description="The memory slices at which an instance may begin.", max_length=16),
    ]
    count: Annotated[int, Meta(description="How many instances of the profile the GPU can have.", ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An instance of a profile on a GPU: `size` memory slices from `start`."""

    profile: str
    start: int
    size: int


# A node pool has few kinds of GPUs, and the planner asks about the same few partitions.
@lru_cache(maxsize=4096)
def arrange(profiles: tuple[str, ...], *, slots: tuple[Slot, ...]) -> tuple[Place, ...] | None:
    """Where instances of these profiles fit on an empty GPU, the largest first; None if they do not fit together."""
    by_profile = {slot.profile: slot for slot in slots}
    if any(
        profile not in by_profile or count > by_profile[profile].count for profile, count in Counter(profiles).items()
    ):
        return None
    wanted = sorted((by_profile[profile] for profile in profiles), key=lambda slot: (-slot.size, slot.profile))
    return _arranged(wanted, taken=0)


def _arranged(wanted: Sequence[Slot], *, taken: int, after: Place | None = None) -> tuple[Place, ...] | None:
    """The places of the slots on the memory slices that are not in the bits `taken`, by depth-first search."""
    if not wanted:
        return ()
    slot, others = wanted[0], wanted[1:]
    # Equal instances are tried in one order only.
    first = after.start + 1 if after is not None and after.profile == slot.profile else 0
    for start in slot.starts:
        slices = ((1 << slot.size) - 1) << start
        if start < first or taken & slices:
            continue
        place = Place(profile=slot.profile, start=start, size=slot.size)
        rest = _arranged(others, taken=taken | slices, after=place)
        if rest is not None:
            return (place, *rest)
    return None


def filled(base: Sequence[str], *, with_any_of: Iterable[str], slots: tuple[Slot, ...]) -> tuple[str, ...]:
    """The profiles of `base`, and of the others, in order, each that still fits with those before it."""
    layout = tuple(base)
    for profile in with_any_of:
        if arrange(tuple(sorted((*layout, profile))), slots=slots) is not None:
            layout = (*layout, profile)
    return layout


def described(profiles: Iterable[str]) -> str:
    """A partition in words: `3g.40gb + 4 x 1g.10gb`."""
    counts: Mapping[str, int] = Counter(profiles)
    return " + ".join(profile if count == 1 else f"{count} x {profile}" for profile, count in counts.items())
