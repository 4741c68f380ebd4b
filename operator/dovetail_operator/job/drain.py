"""Drains: jobs on a node that is to be emptied restart on other nodes. Values only."""

from dataclasses import dataclass
from typing import Final

# In the place of the preempting job's UID, in `status.preemption.by`: no UID is such a word.
DRAIN: Final = "Drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRules:
    """Whether jobs on such nodes restart elsewhere, and the seconds between the notice and the end of their pods."""

    restarts: bool = False
    grace_seconds: float = 60.0
