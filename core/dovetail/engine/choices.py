"""What the configuration may choose between. Values only."""

from dataclasses import dataclass
from typing import Final, Literal

# Which fragmentation term is live: priced headroom, fragmentation gradient descent, best fit, or the best in replays.
FragmentationPolicy = Literal["ph", "fgd", "bestfit", "tuned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of a score's terms; they need not sum to one."""

    utilization: float = 0.4
    memory: float = 0.3
    cpu: float = 0.2
    fragmentation: float = 0.1


DEFAULT_WEIGHTS: Final = Weights()
