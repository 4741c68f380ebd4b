"""The kinds of jobs of a soak, and how each may end. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from dovetail.api.resources import GPUJOBS
from dovetail.jobs.guests.pod_group import POD_GROUPS
from dovetail.names import EXIT_CODE, RUN_SECONDS
from tools.soak import guest_kinds
from tools.soak.guest_kinds import Body, Made, Maker

Spec = dict[str, Any]
# What is done to it: `end` its pods, of which nothing else does; `scale` it up and down, and delete it.
Act = Literal["", "cancel", "release", "end", "scale"]

URGENT: Final = 200
# Three teams share 56 GPUs. The owner never wants more than it is guaranteed; the first one borrows what the others
# leave. Plain pods start within a guarantee alone, since nothing would make them again.
SHARED: Final = "soak"
OWNER: Final = "soak-owner"
PODS: Final = "soak-pods"
GUARANTEED: Final = {SHARED: 16, OWNER: 32, PODS: 8}
_FOR_EVER: Final = 100_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """A kind of job.

    name       its name
    weight     how often it comes
    spec       what a GPUJob requests
    guest      makes objects of another kind instead, by name
    prefix     of the name of a guest's GPUJob
    ends       the phases in which it may end; none for a guest that runs until it is deleted
    act        what is done to it after some seconds
    seconds    its run time, from and to
    exit_code  of its workers
    namespace  of the team that submits it
    """

    name: str
    weight: int
    spec: Callable[[Random], Spec] = lambda _rng: {}
    guest: Maker | None = None
    prefix: str = ""
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
    JobKind(name="mig", weight=4, spec=lambda rng: {"gpu": rng.choice(("1g.5gb", "2g.10gb", "2x1g.5gb"))}),
    JobKind(name="mig-gang", weight=2, spec=lambda rng: {"gpu": "1g.5gb", "workers": rng.randint(2, 4)}),
    JobKind(name="batch-job", weight=4, guest=guest_kinds.batch_job, prefix="job"),
    JobKind(name="job-set", weight=2, guest=guest_kinds.job_set, prefix="jobset"),
    JobKind(name="train-job", weight=2, guest=guest_kinds.train_job, prefix="trainjob"),
    JobKind(name="mpi-job", weight=2, guest=guest_kinds.mpi_job, prefix="mpijob"),
    JobKind(name="ray-job", weight=2, guest=guest_kinds.ray_job, prefix="rayjob"),
    JobKind(
        name="pod-group", weight=3, guest=guest_kinds.pod_group, prefix=POD_GROUPS.prefix, act="end", namespace=PODS,
    ),
    *(
        JobKind(name=name, weight=2, guest=guest, ends=frozenset(), act="scale")
        for name, guest in (
            ("deployment", guest_kinds.deployment), ("stateful-set", guest_kinds.stateful_set),
            ("leader-worker-set", guest_kinds.leader_worker_set), ("ray-cluster", guest_kinds.ray_cluster),
        )
    ),
)  # fmt: skip
# They may run again after they were stopped.
RUN_AGAIN: Final = frozenset({"retries"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One job.

    kind     its kind
    record   the name of its GPUJob; of a guest without one of its own, its name
    objects  what its user writes
    """

    kind: JobKind
    record: str
    objects: Made


def draw(number: int, *, rng: Random) -> Drawn:
    """A job of a kind by its weight, with a name that has the number."""
    kind = rng.choices(KINDS, weights=[each.weight for each in KINDS])[0]
    name = f"{kind.name}-{number}"
    if kind.guest is None:
        return Drawn(kind=kind, record=name, objects=[(GPUJOBS, _gpujob(name, kind=kind, rng=rng))])
    record = f"{kind.prefix}-{name}" if kind.prefix else name
    return Drawn(kind=kind, record=record, objects=kind.guest(name, rng=rng))


def gpus_of(drawn: Drawn) -> int:
    """How many whole GPUs a GPUJob of the owner wants."""
    ((_, body),) = drawn.objects
    return int(body["spec"]["gpu"]) * int(body["spec"]["workers"])


def _gpujob(name: str, *, kind: JobKind, rng: Random) -> Body:
    annotations = {RUN_SECONDS: f"{rng.uniform(*kind.seconds):.1f}", EXIT_CODE: str(kind.exit_code)}
    spec = kind.spec(rng)
    if "reservation" not in spec:
        containers = [{"name": "main", "image": "busybox"}]
        spec = {**spec, "template": {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}}
    return {"apiVersion": GPUJOBS.api_version, "kind": GPUJOBS.kind, "metadata": {"name": name}, "spec": spec}
