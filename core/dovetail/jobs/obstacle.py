"""Why a GPUJob cannot start, apart from room and limits. Values only."""

from dataclasses import dataclass
from datetime import datetime

from dovetail.api.gpujob import Reason
from dovetail.api.reasons.clause import Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle(Sentence):
    """Why a job cannot start in its current state; `until` is when that ends, where known."""

    reason: Reason = "Invalid"
    until: datetime | None = None
