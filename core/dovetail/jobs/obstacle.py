"""Why a GPUJob cannot start, apart from room and limits. Values only."""

from dataclasses import dataclass
from datetime import datetime

from dovetail.api.gpujob import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a job cannot be started as it stands, whatever the queue says; `until` then, where that is known."""

    message: str
    reason: Reason = "Invalid"
    until: datetime | None = None
