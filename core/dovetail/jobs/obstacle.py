"""Why a GPUJob cannot start, apart from room and limits. Values only."""

from dataclasses import dataclass
from datetime import datetime

from dovetail.api.gpujob import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a job cannot start in its current state; `until` is when that ends, where known."""

    message: str
    reason: Reason = "Invalid"
    until: datetime | None = None
