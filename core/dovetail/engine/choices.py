"""What the configuration may choose between. Values only."""

from typing import Literal

# Which fragmentation term is live: priced headroom, fragmentation gradient descent, best fit, or the best in replays.
FragmentationPolicy = Literal["ph", "fgd", "bestfit", "tuned"]
