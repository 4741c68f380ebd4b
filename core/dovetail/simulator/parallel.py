"""Several policies at once, each in its own process.

The only module here that starts processes.
"""

import multiprocessing
import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from dovetail.fragmentation.capacity import Columns
from dovetail.fragmentation.fgd import COVERED_PERCENT
from dovetail.fragmentation.pod_shapes import Choice, Shape
from dovetail.fragmentation.policy import Policy
from dovetail.fragmentation.workload_mix import Mix, by_class, covering
from dovetail.simulator.arrivals import Visit
from dovetail.simulator.experiment import Moving, Outcome, run
from dovetail.simulator.planned_jobs import TERMS, PlannedJobs
from dovetail.simulator.policies import POLICIES, Setting
from dovetail.simulator.trace import Node, columns_of

# Placements per second are per core; a library with more threads would also slow the other processes.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The input of all policies: nodes in static order, arrivals, and the pods of the mix.

    `taken` is allocated on the nodes at the start. With `jobs` the pods are GPUJobs, and the policies are the
    fragmentation terms of the queue and the extender.
    """

    nodes: Sequence[Node]
    visits: Sequence[Visit]
    pods: Sequence[Shape]
    taken: Sequence[Choice] = ()
    departures: bool = False
    seed: int = 0
    jobs: bool = False


def run_one(
    name: str,
    *,
    scene: Scene,
    notice: Callable[[int], None] = lambda _: None,
    moving: Callable[[Columns, Policy], Moving] | None = None,
) -> Outcome:
    """Run one policy in this process, timed by its CPU time. `moving` makes what moves pods, which stay without it."""
    mix = by_class(Counter(scene.pods))
    columns = columns_of(scene.nodes)
    for choice in scene.taken:
        columns.place(choice)
    play = partial(
        run,
        name,
        columns=columns,
        visits=scene.visits,
        expected=expected_mix(mix),
        clock=time.process_time,
        notice=notice,
    )
    if scene.jobs:
        term = next(each for each in TERMS if each == name)
        planned = PlannedJobs(scene.nodes, term=term, taken=scene.taken)
        return play(policy=planned, left=planned.left)
    setting = Setting(columns=columns, mix=mix, departures=scene.departures, seed=scene.seed)
    policy = POLICIES[name].make(setting)
    return play(policy=policy, moving=None if moving is None else moving(columns, policy))


def expected_mix(mix: Mix) -> Mix:
    """The mix for which fragmentation is measured: FGD's."""
    return covering(mix, percent=COVERED_PERCENT)


def run_all(
    names: Sequence[str],
    *,
    scene: Scene,
    processes: int,
    notice: Callable[[str, int], None] = lambda _name, _done: None,
) -> list[Outcome]:
    """Run several policies, `processes` at a time, in the order of `names`.

    `notice` gets a policy and its number of arrivals; it runs in this process.
    """
    context = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)  # a spawned process reads them when it imports NumPy
    try:
        with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
            heard: Any = manager.Queue()
            futures = [pool.submit(_work, name, scene, heard) for name in names]
            _pass_on(heard, futures=futures, notice=notice)
            return [future.result() for future in futures]
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _work(name: str, scene: Scene, heard: Any) -> Outcome:
    return run_one(name, scene=scene, notice=lambda done: heard.put((name, done)))


def _pass_on(heard: Any, *, futures: Sequence[Future[Outcome]], notice: Callable[[str, int], None]) -> None:
    while not all(future.done() for future in futures):
        try:
            notice(*heard.get(timeout=_LOOK_SECONDS))
        except queue.Empty:
            continue
