"""The kinds of jobs of a soak, and how each may end. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from dovetail.api.resources import GPUJOBS
from dovetail.names import EXIT_CODE, RUN_SECONDS

Spec = dict[str, Any]
Act = Literal["", "cancel", "release"]

URGENT: Final = 200
# Two teams share 56 GPUs. The owner never wants more than it is guaranteed; the other one borrows what it leaves.
SHARED: Final = "soak"
OWNER: Final = "soak-owner"
GUARANTEED: Final = {SHARED: 16, OWNER: 32}
_FOR_EVER: Final = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job.

    name       its name
    weight     how often it comes
    spec       what it requests
    ends       the phases in which it may end
    act        what is done to it after some seconds
    seconds    its run time, from and to
    exit_code  of its workers
    namespace  of the team that submits it
    """

    name: str
    weight: int
    spec: Callable[[Random], Spec]
    ends: frozenset[str] = frozenset({"Succeeded"})
    act: Act = ""
    seconds: tuple[float, float] = (5.0, 100.0)
    exit_code: int = 0
    namespace: str = SHARED


def _fixed(**spec: Any) -> Callable[[Random], Spec]:
    return lambda _rng: spec


_PARAMETERS: Final = [{"name": "lr", "values": ["0.1", "0.01"]}, {"name": "bs", "values": ["32", "64"]}]
_CANCELLED: Final = frozenset({"Cancelled", "Succeeded"})

KINDS: Final = (
    JobKind(name="whole", weight=10, spec=_fixed(gpu=1)),
    JobKind(name="several", weight=5, spec=lambda rng: {"gpu": rng.choice((2, 4))}),
    JobKind(name="share", weight=10, spec=lambda rng: {"gpu": rng.choice(("0.25", "0.5", "0.7"))}),
    JobKind(name="memory", weight=8, spec=lambda rng: {"gpu": rng.choice(("4G,0.2", "8G,0.5"))}),
    JobKind(name="model", weight=3, spec=_fixed(gpu="1(V100)")),
    JobKind(name="turns", weight=3, spec=_fixed(gpu="1x8G,1", mode="TimeShared")),
    JobKind(name="cpu", weight=3, spec=_fixed(resources={"device": "cpu"})),
    JobKind(name="gang", weight=5, spec=lambda rng: {"gpu": rng.choice((1, 2)), "workers": rng.randint(2, 6)}),
    JobKind(name="elastic", weight=3, spec=_fixed(gpu=1, workers=6, minWorkers=2)),
    # So many devices are rarely free before victims could have left: 2 s of notice and pods' 30 s.
    JobKind(name="urgent", weight=1, spec=_fixed(gpu=2, workers=10, priority=URGENT), seconds=(5.0, 30.0)),
    # The other team holds nearly all GPUs, so it starts when jobs of that team have ended for it.
    JobKind(
        name="owner", weight=3, spec=lambda rng: {"gpu": rng.choice((1, 2)), "workers": rng.randint(1, 4)},
        seconds=(5.0, 30.0), namespace=OWNER,
    ),
    JobKind(name="array", weight=2, spec=_fixed(gpu="0.25", array={"indexes": "0-5", "parallelism": 3})),
    JobKind(name="sweep", weight=2, spec=_fixed(gpu="0.5", sweep={"parameters": _PARAMETERS})),
    JobKind(name="fails", weight=3, spec=_fixed(gpu=1), ends=frozenset({"Failed"}), exit_code=3),
    JobKind(
        name="retries", weight=2, spec=_fixed(gpu="0.5", backoffLimit=1), ends=frozenset({"Failed"}), exit_code=75,
        seconds=(1.0, 3.0),
    ),
    JobKind(
        name="time-limit", weight=3, spec=_fixed(gpu=1, activeDeadlineSeconds=5), ends=frozenset({"TimedOut"}),
        seconds=(_FOR_EVER, _FOR_EVER),
    ),
    JobKind(
        name="total-limit", weight=2, spec=_fixed(gpu="0.5", maximumExecutionTimeSeconds=6),
        ends=frozenset({"TimedOut"}), seconds=(_FOR_EVER, _FOR_EVER),
    ),
    JobKind(
        name="reservation", weight=2, spec=_fixed(gpu=1, reservation={"durationSeconds": 8}),
        ends=frozenset({"TimedOut"}),
    ),
    JobKind(name="cancelled", weight=4, spec=_fixed(gpu=1), ends=_CANCELLED, act="cancel", seconds=(60.0, 60.0)),
    JobKind(name="held", weight=3, spec=_fixed(gpu=1, suspend=True), act="release"),
)  # fmt: skip
# They may run again after they were stopped.
RUN_AGAIN: Final = frozenset({"retries"})


def draw(number: int, *, rng: Random) -> tuple[JobKind, dict[str, Any]]:
    """A kind by its weight, and a GPUJob of that kind as in YAML, with a name that has the number."""
    kind = rng.choices(KINDS, weights=[each.weight for each in KINDS])[0]
    annotations = {RUN_SECONDS: f"{rng.uniform(*kind.seconds):.1f}", EXIT_CODE: str(kind.exit_code)}
    spec = kind.spec(rng)
    if "reservation" not in spec:
        containers = [{"name": "main", "image": "busybox"}]
        spec = {**spec, "template": {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}}
    name = f"{kind.name}-{number}"
    return kind, {"apiVersion": GPUJOBS.api_version, "kind": GPUJOBS.kind, "metadata": {"name": name}, "spec": spec}
