"""Where the workers of a gang must or should be, by levels of the network. Values only."""

from dataclasses import dataclass
from typing import Final

HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A level of the network, such as `rack`: nodes with equal values of `label` are one domain of it."""

    name: str
    label: str


# From wide to narrow. Nodes have no common label for blocks and racks, so these have Dovetail's own names.
DEFAULT_LEVELS: Final = (
    Level(name="zone", label="topology.kubernetes.io/zone"),
    Level(name="block", label="dovetail.dev/block"),
    Level(name="rack", label="dovetail.dev/rack"),
    Level(name="nvlink", label="nvidia.com/gpu.clique"),
    Level(name="host", label=HOSTNAME),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a gang's own workers must spread over the domains of a label, as its pod template says.

    label           nodes with equal values of it are one domain
    most            the most workers in one domain; 0 for no such limit
    max_skew        how many more workers a domain may have than the one with the fewest; 0 for no such limit
    min_domains     with fewer domains than this, the one with the fewest counts as empty
    """

    label: str
    most: int = 0
    max_skew: int = 0
    min_domains: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The rules of a gang.

    levels          all levels, from wide to narrow
    required        the level of which one domain has all workers; empty where several may have them
    preferred       the level that is tried first, and then each wider one; empty for none
    group_size      so many consecutive workers are in one domain of `group_level`; 0 without groups
    group_level     the level of a group
    spreads         how the template spreads the workers
    """

    levels: tuple[Level, ...]
    required: str = ""
    preferred: str = ""
    group_size: int = 0
    group_level: str = ""
    spreads: tuple[Spread, ...] = ()

    def path(self, name: str) -> tuple[str, ...]:
        """The labels from the widest level to the level `name`: equal names in two zones are two domains."""
        names = [level.name for level in self.levels]
        return tuple(level.label for level in self.levels[: names.index(name) + 1])

    def is_narrower(self, name: str, *, than: str) -> bool:
        """Whether the level `name` lies below the level `than`."""
        names = [level.name for level in self.levels]
        return names.index(name) > names.index(than)

    @property
    def is_bound(self) -> bool:
        """Whether a plan must or should respect a domain, so that not every set of nodes is as good."""
        return bool(self.required or self.preferred or self.group_size or self.spreads)
