"""MIG profiles: how NVIDIA names the sizes of a partitioned GPU's instances. Pure.

A profile such as `3g.40gb` is 3 of a GPU's 7 compute slices and 40 GB of its memory. `+me` marks the profile that has
the media engines too; a resource name has `.me` in its place.
"""

import re
from functools import lru_cache
from typing import Final

# Of the resources of NVIDIA's plugin in its mixed strategy: each profile has one.
RESOURCE_PREFIX: Final = "nvidia.com/mig-"
# NVIDIA counts seven compute slices of every GPU since the A100; the A30 has four, of the same names.
SLICES: Final = 7
# The profile in texts that users write, in RE2 and Python alike. Larger than any of NVIDIA's in both numbers.
PROFILE_PATTERN: Final = r"[1-7]g\.[1-9][0-9]{0,2}gb([+.]me)?"
_PROFILE: Final = re.compile(PROFILE_PATTERN, re.IGNORECASE | re.ASCII)
_MIB_OF_GB: Final = 1024


def normalised(text: str) -> str | None:
    """The profile in NVIDIA's own spelling: `1G.10GB` and `1g.10gb.me` are read too. None for anything else."""
    if _PROFILE.fullmatch(text) is None:
        return None
    return text.lower().replace(".me", "+me")


def compute_slices(profile: str) -> int:
    """How many of a GPU's seven compute slices an instance has."""
    return int(profile[0])


def milli_of(profile: str, *, count: int = 1) -> int:
    """The compute of so many instances in thousandths of a GPU, rounded down: seven slices are a GPU."""
    return 1000 * count * compute_slices(profile) // SLICES


def model_of(name: str) -> str:
    """The model of a device's name: NVIDIA's driver names an instance by its GPU's model and its profile."""
    return name.partition(" MIG ")[0]


def memory_mib(profile: str) -> int:
    """The memory of an instance in MiB by its name; its driver reports a little less."""
    return _MIB_OF_GB * int(profile.partition(".")[2].partition("gb")[0])


def resource_of(profile: str) -> str:
    """The resource of NVIDIA's device plugin for instances of a profile."""
    return RESOURCE_PREFIX + profile.replace("+", ".")


# The same few resources come with every event of a pod or node.
@lru_cache(maxsize=1024)
def profile_of(resource: str) -> str | None:
    """The profile of a resource such as `nvidia.com/mig-1g.10gb`; None for any other resource."""
    if not resource.startswith(RESOURCE_PREFIX):
        return None
    return normalised(resource.removeprefix(RESOURCE_PREFIX))
