"""The scene that all policies of a simulation share, from files and options.

Also the sentences that describe it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.gpu import mig
from dovetail.simulator import arrivals as drawing
from dovetail.simulator import snapshot, trace
from dovetail.simulator.parallel import Scene
from dovetail.simulator.scenario import Stage, stage
from dovetail.simulator.trace import Node
from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.files import read_text

DRAWN_PERCENT: Final = 130
LIFETIMES: Final = 4
_LARGEST_LOAD: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The options that make a scene."""

    nodes: str | None = None
    snapshot: str | None = None
    mig_profile: str | None = None
    pods: str | None = None
    arrivals: str | None = None
    node_order: str | None = None
    departures: float | None = None
    tied: float = 0.0
    seed: int = 42
    jobs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedScene:
    """A scene, and what to say about it."""

    scene: Scene
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    nodes: tuple[Node, ...]
    staged: Stage | None = None
    profile: str = ""

    @property
    def capacity_milli(self) -> int:
        return sum(node.gpus for node in self.nodes) * WHOLE_MILLI

    @property
    def taken(self) -> tuple[Choice, ...]:
        return () if self.staged is None else self.staged.taken

    @property
    def taken_milli(self) -> int:
        return sum(choice.shape.gpu_milli for choice in self.taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pods:
    """The arrivals and their description.

    `recorded` in their order, or drawn from `mix` after `first`.
    """

    mix: Sequence[Shape]
    recorded: Sequence[Shape] | None
    first: Sequence[Shape] = ()
    source: str


def scene(given: Given) -> DescribedScene:
    """The scene.

    Raises `UsageError` for an invalid line or value, `MissingError` if a file does not exist.
    """
    _check(given)
    try:
        cluster = _cluster(given)
        pods = _pods(given, cluster=cluster)
    except (trace.TraceError, snapshot.SnapshotError) as error:
        raise UsageError(str(error)) from error
    return _arriving(given, cluster=cluster, pods=pods)


def _cluster(given: Given) -> _Cluster:
    if given.snapshot is not None:
        profile = _profile(given.mig_profile)
        staged = stage(snapshot.parse(read_text(given.snapshot), source=given.snapshot), profile=profile)
        cluster = _Cluster(nodes=staged.nodes, staged=staged, profile=profile)
        kind = f"MIG instance of {profile}" if profile else "GPU"
        what = f"{given.snapshot}: no node has a {kind} that could be used"
    else:
        assert given.nodes is not None, "checked before"
        listed = trace.parse_nodes(read_text(given.nodes), source=given.nodes)
        if given.node_order is not None:
            listed = trace.parse_order(read_text(given.node_order), source=given.node_order, nodes=listed)
        cluster = _Cluster(nodes=listed)
        what = f'{given.nodes}, column "gpu": every node has 0, expected at least one GPU'
    if not cluster.capacity_milli:
        raise UsageError(what)
    return cluster


def _pods(given: Given, *, cluster: _Cluster) -> _Pods:
    staged = cluster.staged
    if given.pods is None:
        assert staged is not None, "checked before"
        kind = f"MIG instance of {cluster.profile}" if cluster.profile else "GPU"
        mix = _with_devices(staged.mix, what=f"{given.snapshot}: no job or pod in it asks for a {kind}; name --pods")
        source = f"the {_count(len(mix), 'pod')} that ran, run or wait in {given.snapshot}"
        return _Pods(mix=mix, recorded=None, first=staged.waiting, source=source)
    table = trace.parse_pods(read_text(given.pods), source=given.pods)
    if given.arrivals is not None:
        recorded = trace.parse_arrivals(read_text(given.arrivals), source=given.arrivals, pods=table)
        return _Pods(mix=list(table.values()), recorded=recorded, source=given.arrivals)
    nothing = f'{given.pods}, column "num_gpu": every pod has 0, expected at least one that asks for a GPU'
    return _Pods(mix=_with_devices(table.values(), what=nothing), recorded=None, source=given.pods)


def _arriving(given: Given, *, cluster: _Cluster, pods: _Pods) -> DescribedScene:
    """The scene with its arrivals: recorded or drawn, tied to models, and leaving or not."""
    random = np.random.default_rng(given.seed)
    load, mix = given.departures, pods.mix
    shapes, sentence = _shapes(given, cluster=cluster, pods=pods, random=random)
    said = [_cluster_sentence(cluster), sentence]
    if given.tied:
        # The mix to come is then that of the arrivals: the table knows nothing of the models.
        columns = trace.columns_of(cluster.nodes)
        mix = shapes = drawing.tied(shapes, columns=columns, percent=given.tied, random=random)
        said.append(_tied_sentence(given, shapes=shapes))
    if load is None:
        visits = drawing.filling(shapes)
    else:
        visits = drawing.visiting(shapes, capacity_milli=cluster.capacity_milli, load=load, random=random)
        said.append(
            f"They come as a Poisson process that offers a load of {load:g}, and leave after exponential lifetimes."
        )
    made = Scene(
        nodes=cluster.nodes,
        visits=visits,
        pods=mix,
        taken=cluster.taken,
        departures=load is not None,
        seed=given.seed,
        jobs=given.jobs,
    )
    if given.jobs:
        said.append("Those with GPUs are GPUJobs, planned by the queue; jobs that do not fit are passed over.")
    return DescribedScene(scene=made, said=tuple(said))


def _shapes(
    given: Given, *, cluster: _Cluster, pods: _Pods, random: np.random.Generator
) -> tuple[Sequence[Shape], str]:
    """Who arrives, and a sentence about it."""
    if pods.recorded is not None:
        return pods.recorded, f"{_count(len(pods.recorded), 'pod')} in the order of {pods.source}."
    percent = DRAWN_PERCENT if given.departures is None else 100 * given.departures * (1 + LIFETIMES)
    there_milli = cluster.taken_milli + sum(shape.gpu_milli for shape in pods.first)
    rest_percent = max(0.0, percent - 100 * there_milli / cluster.capacity_milli)
    drawn = drawing.sample(pods.mix, capacity_milli=cluster.capacity_milli, percent=rest_percent, random=random)
    first = f"First {_count(len(pods.first), 'pod')} of the queue, then " if pods.first else ""
    sentence = (
        f"{first}{_count(len(drawn), 'pod')} drawn from {pods.source} with seed {given.seed}, "
        f"up to {percent:g} % arrived."
    )
    return [*pods.first, *drawn], sentence


def _cluster_sentence(cluster: _Cluster) -> str:
    gpus = cluster.capacity_milli // WHOLE_MILLI
    devices = f"MIG instances of {cluster.profile}" if cluster.profile else "GPUs"
    sentence = f"{len(cluster.nodes):,} nodes with {gpus:,} {devices}"
    staged = cluster.staged
    if staged is None:
        return f"{sentence}, empty when it begins."
    taken = 100 * cluster.taken_milli / cluster.capacity_milli
    left = _left_out(staged, profile=cluster.profile)
    return f"{sentence}, {taken:.1f} % of them taken when it begins; memory on the GPUs is not simulated.{left}"


def _profile(text: str | None) -> str:
    """The MIG profile that an option names; empty without one. Raises `UsageError`."""
    if text is None:
        return ""
    profile = mig.normalised(text)
    if profile is None:
        raise UsageError(f'--mig-profile "{text}": expected a profile such as 1g.10gb or 3g.40gb')
    return profile


def _left_out(staged: Stage, *, profile: str) -> str:
    counts = {
        f"that request {'other devices' if profile else 'MIG instances'}": (staged.of_other_devices, "waiting pod"),
        "closed to pods": (staged.closed_nodes, "node"),
        "that could never fit": (staged.impossible, "waiting pod"),
    }
    text = " and ".join(f"{_count(*counted)} {what}" for what, counted in counts.items() if counted[0])
    return f" Left out: {text}." if text else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _tied_sentence(given: Given, *, shapes: Sequence[Shape]) -> str:
    counts: dict[str, int] = {}
    for shape in shapes:
        if len(shape.models) == 1:
            counts[shape.models[0]] = counts.get(shape.models[0], 0) + 1
    total = sum(counts.values())
    shares = ", ".join(
        f"{model} {100 * counts[model] / total:.0f} %" for model in sorted(counts, key=lambda m: -counts[m])
    )
    return (
        f"{given.tied:g} % of those with GPUs are tied to one model, drawn by its number of GPUs: {shares or 'none'}."
    )


def _with_devices(shapes: Iterable[Shape], *, what: str) -> list[Shape]:
    """The shapes to draw from, of which one at least asks for devices."""
    drawable = list(shapes)
    if not any(shape.gpus for shape in drawable):
        raise UsageError(what)
    return drawable


def _check(given: Given) -> None:
    if (given.nodes is None) == (given.snapshot is None):
        raise UsageError("name --nodes or --snapshot: the cluster comes from one of them")
    if given.nodes is not None and given.pods is None:
        raise UsageError("--nodes needs --pods: which pods arrive; only a snapshot has pods of its own")
    if given.arrivals is not None and given.pods is None:
        raise UsageError("--arrivals needs --pods: what the pods that it names ask for")
    if given.mig_profile is not None and given.snapshot is None:
        raise UsageError("--mig-profile goes with --snapshot: only a snapshot has MIG instances")
    if given.snapshot is not None and given.node_order is not None:
        raise UsageError("--node-order goes with --nodes: a snapshot's nodes have their order")
    if given.snapshot is not None and given.departures is not None:
        raise UsageError("--departures needs --nodes: a snapshot does not say when its pods leave")
    if given.departures is not None and not 0 < given.departures <= _LARGEST_LOAD:
        raise UsageError(f"--departures {given.departures:g}: expected a load above 0, up to {_LARGEST_LOAD:g}")
    if not 0 <= given.tied <= 100:
        raise UsageError(f"--tied {given.tied:g}: expected a percentage, 0 to 100")
    if given.seed < 0:
        raise UsageError(f"--seed {given.seed}: expected 0 or more")
