"""Walks through the operator in which two mechanisms meet, each with all checks of the machine and no others.

A walk is data: changes, and times at which everything has to have settled. It is walked as it is, with an operator that
is replaced by a new one before each check, with late events, and with cycles that take long.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.world import rebuilt
from tests.world.rules import Rules
from tests.world.world import World

Step = tuple[Any, ...]
SETTLE: Final[Step] = ("settle",)


def submit(key: str, gpu: str = "1", **spec: Any) -> Step:
    namespace, _, name = key.partition("/")
    return "submit", {"namespace": namespace, "name": name, "gpu": gpu, **spec}


NODES: Final[dict[str, int]] = {"a": 4, "b": 2}
GUARANTEE: Final[Step] = ("quota", "lab", {"namespaces": ["lab"], "guaranteed": {"gpus": 2}})

WALKS: Final[dict[str, list[Step]]] = {
    "a user at the limit of jobs has one that would run on the CPU": [
        ("quota", "q", {"users": ["ada"], "limit": {"runningJobs": 1}}),
        submit("team/x", user="ada"),
        SETTLE,
        submit("team/y", "8", user="ada", onNoGPU="RunOnCPU"),
        submit("lab/y", "4", user="ada", onNoGPU="RunOnCPU", onNoGPUAfterSeconds=0),
        submit("lab/x", "8", user="bob", onNoGPU="RunOnCPU"),
        SETTLE,
        ("finish", "team/x"),
        SETTLE,
    ],
    "pods of others use the quota of a project": [
        ("quota", "q", {"projects": ["p"], "limit": {"gpus": 2}}),
        ("quota", "m", {"limit": {"models": {"V100": 3}, "memory": "96Gi"}}),
        ("pod", "a", "team", "p"),
        SETTLE,
        submit("team/x", project="p"),
        submit("lab/x", "2", project="p"),
        submit("lab/y", "2(V100)"),
        SETTLE,
        ("pods go",),
        SETTLE,
    ],
    "an owner takes back and a priority preempts in one cycle": [
        GUARANTEE,
        submit("team/x", "4", priority=0),
        submit("team/y", "2", priority=0),
        SETTLE,
        submit("lab/x", "2"),
        submit("team/z", "4", priority=60),
        submit("lab/y", "1"),
        SETTLE,
    ],
    "one job could end for an owner and for a priority": [
        ("pod", "b", "team", ""),
        ("pod", "b", "team", ""),
        submit("team/x", "4", priority=0),
        SETTLE,
        GUARANTEE,
        submit("lab/x", "2", priority=90),
        submit("team/z", "2", priority=60),
        SETTLE,
    ],
    "room comes while others are about to end": [
        submit("team/x", "4", priority=0),
        submit("team/y", "2", priority=0),
        SETTLE,
        submit("team/z", "4", priority=60),
        *[submit(f"lab/{name}", "4", priority=1) for name in "vwxyz"],
        ("wait", 3.0),
        ("node", "d", 4),
        SETTLE,
    ],
    "what waits for an end starts by it": [
        submit("team/x"),
        submit("lab/x"),
        submit("team/y", dependencies=[{"name": "x"}]),
        submit("team/z", dependencies=[{"name": "y", "condition": "Finished"}]),
        SETTLE,
        ("finish", "team/x"),
        SETTLE,
        ("finish", "team/y"),
        SETTLE,
    ],
    "a worker is evicted, and another has its room": [
        submit("team/x", "2", workers=3, restart="Worker", backoffLimit=3),
        SETTLE,
        ("evict", "team/x"),
        ("pod", "a", "lab", ""),
        ("pod", "b", "lab", ""),
        ("wait", 3.0),
        ("check workers",),
        SETTLE,
    ],
    "a node goes, its worker gets another, and the job is held meanwhile": [
        ("node", "d", 2),
        submit("team/x", "2", workers=3, restart="Worker", backoffLimit=3),
        SETTLE,
        ("gone", "b"),
        ("wait", 1.0),
        ("edit", "team/x", {"suspend": True}),
        ("wait", 1.0),
        ("edit", "team/x", {"suspend": False}),
        SETTLE,
        ("gone", "d"),
        SETTLE,
    ],
    "a preempted gang, a drain and a limit": [
        submit("team/x", "1", workers=3, priority=0),
        submit("lab/x", "2", priority=0, preemptible=False),
        SETTLE,
        ("quota", "q", {"per": "Namespace", "limit": {"gpus": 4}}),
        submit("team/y", "2", priority=60, workers=2),
        ("wait", 1.0),
        ("cordon", "b"),
        SETTLE,
        ("node", "d", 4),
        SETTLE,
        ("finish", "team/y"),
        SETTLE,
    ],
    "an elastic job, groups, and what comes back": [
        submit("team/x", "1", workers=6, minWorkers=1),
        submit("lab/x", group="g", maxConcurrent=1),
        submit("lab/y", group="g", maxConcurrent=1),
        submit("team/y", group="g", maxConcurrent=1),
        SETTLE,
        GUARANTEE,
        submit("lab/z", "2"),
        SETTLE,
        ("finish", "lab/x"),
        SETTLE,
    ],
    "a worker has left a node that is then drained, and its pod takes a minute to end": [
        ("node", "d", 4),
        ("ends take", 60.0),
        submit("team/x", "4", workers=2, restart="Worker", backoffLimit=3),
        SETTLE,
        ("delete pod", "team/x", "a"),
        ("cordon", "a"),
        ("node", "e", 4),
        ("node", "f", 8),
        ("wait", 20.0),
        submit("lab/x", "2"),
        ("wait", 60.0),
        SETTLE,
    ],
    "a job leaves a drained node, where its pods take a minute to end": [
        ("ends take", 60.0),
        submit("team/x", "4"),
        SETTLE,
        ("node", "d", 4),
        ("cordon", "a"),
        ("wait", 20.0),
        submit("lab/x", "2"),
        ("wait", 80.0),
        SETTLE,
    ],
    "Kueue lets jobs go, takes one back and gets one that ran": [
        ("Kueue has", 4),
        submit("team/x", "2", queue="lq"),
        submit("team/y", "1", workers=2, queue="lq"),
        submit("team/z", "1", queue="lq"),
        SETTLE,
        ("Kueue has", 2),
        ("wait", 1.0),
        submit("lab/x", "2"),
        SETTLE,
        ("Kueue has", 5),
        SETTLE,
        ("finish", "team/x"),
        ("requeue", "lab/x", "lq"),
        SETTLE,
        ("delete", "team/y"),
        submit("team/y", "1"),
        SETTLE,
    ],
    "a job of Kueue's is held, released, leaves its queue and comes back": [
        ("Kueue has", 4),
        submit("team/x", "2", workers=2, queue="lq"),
        SETTLE,
        ("edit", "team/x", {"suspend": True}),
        ("wait", 1.0),
        submit("lab/y", "4", queue="lq"),
        SETTLE,
        ("edit", "team/x", {"suspend": False}),
        SETTLE,
        ("requeue", "team/x", ""),
        ("requeue", "lab/y", "other"),
        SETTLE,
        ("requeue", "team/x", "lq"),
        ("Kueue has", 0),
        SETTLE,
        ("Kueue has", 8),
        SETTLE,
        ("fail", "lab/y"),
        ("edit", "team/x", {"cancel": True}),
        SETTLE,
    ],
    "deleted, and submitted again under the same name": [
        submit("team/x", "2", workers=2),
        submit("team/y", "4", dependencies=[{"name": "x"}]),
        ("wait", 2.0),
        ("delete", "team/x"),
        submit("lab/x", "2", workers=2),
        ("wait", 0.5),
        submit("team/x", "4"),
        SETTLE,
        ("delete", "lab/x"),
        ("edit", "team/x", {"cancel": True}),
        SETTLE,
    ],
}


class Walker:
    def __init__(self, *, seed: int | None = None, restarts: bool = False, slow_cycles: bool = False) -> None:
        self.world = World(seed=seed, slow_cycles=slow_cycles)
        self.laws = Rules(self.world)
        self.restarts = restarts
        for name, gpus in NODES.items():
            self.world.add_node(name, gpus=gpus)
        self.world.pass_time(1.0)

    def walk(self, steps: list[Step]) -> None:
        for step in steps:
            self.step(*step)
        self.world.clear()
        self.world.settle()
        self.world.look()
        rebuilt.check_empty(self.world)

    def step(self, what: str, *args: Any) -> None:
        self.laws.is_calm = self.laws.is_calm and what not in {"quota", "pod"}
        self.laws.watch_notices()
        self.laws.watch_events()
        world = self.world
        steps: dict[str, Callable[..., object]] = {
            "submit": lambda values: world.submit(**values),
            "quota": lambda name, spec: world.set_quota(name, **spec),
            "finish": world.finish,
            "fail": lambda key: world.finish(key, exit_code=1, most=1),
            "evict": lambda key: world.finish(key, exit_code=1, most=1, disrupted=True),
            "edit": lambda key, spec: world.edit(key, **spec),
            "delete": lambda key: world.server.delete("gpujobs", key),
            "node": lambda name, gpus: world.add_node(name, gpus=gpus),
            "gone": world.remove_node,
            "cordon": world.cordon,
            "pod": lambda node, namespace, project: world.add_pod_with_room(node, namespace=namespace, project=project),
            "pods go": world.remove_other_pods,
            "wait": world.pass_time,
            "delete pod": world.delete_pod,
            "requeue": lambda key, queue: world.requeue(key, queue=queue),
            "Kueue has": lambda gpus: setattr(world.cluster.kueue, "most_milli", 1000 * gpus),
            "ends take": lambda seconds: setattr(world.cluster, "ending_seconds", seconds),
            "check workers": self.check_workers_soon,
            "settle": self.settle,
        }
        steps[what](*args)

    def check_workers_soon(self) -> None:
        """What is late may take some seconds."""
        broken: AssertionError | None = None
        for _ in range(5):
            try:
                self.laws.check_workers()
            except AssertionError as error:
                broken = error
                self.world.pass_time(1.0)
            else:
                return
        assert broken is None, broken

    def settle(self) -> None:
        self.world.settle()
        if self.restarts:
            self.world.restart()
            self.laws.watch_notices()
            self.world.settle()
        rebuilt.check(self.world)
        self.laws.check_ends()
        self.laws.check_statuses()
        self.laws.check_starts()
        self.laws.check_workers()
        self.laws.check_others_jobs()
        self.laws.is_calm = True


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize(
    "options",
    [{"slow_cycles": True}, {"seed": 1, "restarts": True}],
    ids=["with slow cycles", "with late events and new operators"],
)
def test_each_walk_leaves_what_the_objects_say(name: str, options: dict[str, Any]) -> None:
    walker = Walker(**options)
    try:
        walker.walk(WALKS[name])
    finally:
        walker.world.close()


KILLED: Final[list[Step]] = [
    submit("team/x", "4", priority=0),
    submit("team/y", "2", priority=0),
    SETTLE,
    GUARANTEE,
    submit("team/z", "4", priority=60),
    submit("lab/x", "2"),
    submit("lab/y", "1", dependencies=[{"name": "x"}]),
]
# So many writes follow from them.
WRITES: Final = 24


@pytest.mark.slow
@pytest.mark.parametrize("writes", range(1, WRITES, 2))
def test_an_operator_that_is_killed_after_any_of_its_writes_loses_and_repeats_nothing(writes: int) -> None:
    walker = Walker()
    try:
        for step in KILLED:
            walker.step(*step)
        walker.world.kill_after(writes)
        walker.settle()
        assert walker.world.kills == 1
    finally:
        walker.world.close()


CARRIED: Final[list[Step]] = [
    submit("team/x"),
    submit("team/y", "2"),
    submit("lab/x", "1", workers=2),
    submit("lab/y", "1"),
]
# All of these jobs run. A gang and a job that waits have their plans in their statuses first.
WRITES_OF_CARRIED: Final = 12


@pytest.mark.parametrize("seed", [None, 2])
@pytest.mark.parametrize("writes", range(1, WRITES_OF_CARRIED))
def test_an_operator_that_is_killed_while_batch_jobs_carry_plans_loses_and_repeats_nothing(
    writes: int, seed: int | None
) -> None:
    walker = Walker(seed=seed)
    try:
        walker.world.kill_after(writes)
        for step in CARRIED:
            walker.step(*step)
        walker.settle()
        assert walker.world.kills == 1
    finally:
        walker.world.close()


def test_a_job_with_one_worker_costs_its_number_its_batch_job_and_one_status() -> None:
    walker = Walker()
    try:
        walker.step(*submit("team/x"))
        walker.settle()
        assert len(walker.world.operator.writes) == 3, walker.world.operator.writes
    finally:
        walker.world.close()


def test_every_name_in_the_lists_of_tables_is_one_of_a_table() -> None:
    world = World()
    try:
        assert set(rebuilt.unknown_names(world)) <= {"_Job.holds"}
    finally:
        world.close()
