"""Where the workers of a GPUJob are, by levels of the network. Data only."""

from typing import Annotated, Final

from msgspec import Meta

from dovetail.api.meta import Described

LEVEL_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME: Final = Meta(pattern=LEVEL_PATTERN, max_length=63)


class SubGroups(Described, frozen=True, kw_only=True):
    """Workers that belong together: each group is in one domain of a level."""

    size: Annotated[
        int, Meta(description="Number of workers of a group: the first so many are the first group.", ge=2, le=1024)
    ]
    required: Annotated[
        Annotated[str, _NAME], Meta(description="The level of which one domain has all workers of a group.")
    ]


class TopologySpec(Described, frozen=True, kw_only=True):
    """Which levels of the network hold the workers together. The configuration names the levels (topology_levels)."""

    required: Annotated[
        Annotated[str, _NAME] | None,
        Meta(description="The level of which one domain has all workers, such as rack. Unset: no such rule."),
    ] = None
    preferred: Annotated[
        Annotated[str, _NAME] | None,
        Meta(description="The level that is tried first, and then each wider one. Unset: none is preferred."),
    ] = None
    sub_groups: Annotated[
        SubGroups | None, Meta(description="Groups of workers within the job that belong together. Unset: none.")
    ] = None
