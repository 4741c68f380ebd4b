"""Which disturbance comes when. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

Kind = Literal["kill", "pause", "delay", "drop", "stall", "api-server", "clock", "certificate"]

OPERATOR: Final = "operator"
PROGRAMS: Final = (OPERATOR, "extender", "kube-scheduler", "agent", "webhook")
# The API server cannot be cut off from itself, and only clients have a way through the proxy.
CLIENTS: Final = (OPERATOR, "extender", "kube-scheduler", "agent")
# A killed program starts with empty caches. Kills end early enough for them to fill within the first quarter, after
# which memory is compared.
KILLS_UNTIL: Final = 0.15
# How often each kind comes after the kills have ended, and for how long, in seconds.
_WEIGHTS: Final[dict[Kind, int]] = {
    "pause": 6, "delay": 4, "drop": 4, "stall": 3, "api-server": 1, "clock": 3, "certificate": 1,
}  # fmt: skip
_SECONDS: Final[dict[Kind, tuple[float, float]]] = {
    "pause": (2, 25), "delay": (5, 30), "drop": (2, 15), "stall": (5, 40), "clock": (20, 60),
}  # fmt: skip
_CLOCK_STEP_SECONDS: Final = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One disturbance.

    at       seconds after the start
    kind     what happens
    target   the program; empty for one of all
    seconds  how long it lasts; 0 for a moment
    step     of the clock, in seconds
    """

    at: float
    kind: Kind
    target: str = ""
    seconds: float = 0.0
    step: float = 0.0


def plan(*, total_seconds: float, every_seconds: float, seed: int, leave_out: Sequence[Kind] = ()) -> list[Disturbance]:
    """Disturbances one after the other, some `every_seconds` apart, in the order of their times.

    None begins in the last tenth, in which what waits can end. One has ended before the next begins, so that an outage
    has one cause.
    """
    rng = Random(seed)
    kinds = {kind: weight for kind, weight in _WEIGHTS.items() if kind not in leave_out}
    made: list[Disturbance] = []
    at = every_seconds
    while at < 0.9 * total_seconds:
        killing = at < KILLS_UNTIL * total_seconds and rng.random() < 0.6
        kind: Kind = "kill" if killing else rng.choices(list(kinds), weights=list(kinds.values()))[0]
        made.append(_one(kind, at=at, rng=rng))
        at += made[-1].seconds + every_seconds * rng.uniform(0.5, 1.5)
    return made


def _one(kind: Kind, *, at: float, rng: Random) -> Disturbance:
    target = ""
    if kind in {"kill", "pause"}:
        target = rng.choice(PROGRAMS)
    elif kind in {"delay", "drop", "stall"}:
        target = rng.choice(CLIENTS)
    step = rng.choice((-1, 1)) * rng.uniform(5, _CLOCK_STEP_SECONDS) if kind == "clock" else 0.0
    seconds = rng.uniform(*_SECONDS[kind]) if kind in _SECONDS else 0.0
    return Disturbance(at=at, kind=kind, target=target, seconds=seconds, step=step)
