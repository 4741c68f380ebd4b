"""The queue over time with the whole operator around it, as a state machine.

Jobs of two tenants with the same names come, change and go under quotas of each kind, among nodes that come and go and
pods of others. Writes, answers and events are late; the operator is killed after any of its writes. When everything has
settled, all that is kept is compared with what the objects say (`rebuilt`), and the rules are checked (`rules`).
"""

from typing import Any, Final

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.world import rebuilt
from tests.world.rules import Rules
from tests.world.world import World

NAMESPACES: Final = ("team", "lab")
NAMES: Final = ("x", "y", "z")
NODES: Final[dict[str, dict[str, Any]]] = {
    "a": {"gpus": 4},
    "b": {"gpus": 2, "sizes": (16384, 32768)},
    "c": {"gpus": 2, "model": "A100", "sizes": (40960, 81920)},
}
SHAPES: Final = ("1", "1", "2", "2", "4", "0.5", "20G,0.25", "1(A100)", "2(V100)")
_QUOTAS: Final = (
    None,
    *({"namespaces": [namespace], "limit": {"gpus": most}} for namespace in NAMESPACES for most in (0, 2, 3)),
    *({"projects": ["p"], "limit": {"gpus": most}} for most in (0, 1, 2)),
    *({"users": [user], "limit": {"runningJobs": most}} for user in ("ada", "bob") for most in (0, 1)),
    *({"per": per, "limit": {"gpus": most}} for per in ("User", "Namespace") for most in (1, 3)),
    *({"per": per, "limit": {"runningJobs": 1}} for per in ("User", "Namespace")),
    *({"limit": {"models": {model: most}}} for model in ("A100", "V100") for most in (0, 2)),
    *({"limit": {"memory": most}} for most in ("32Gi", "96Gi")),
    {"limit": {"queuedJobs": 1}},
    *({"namespaces": [namespace], "maxPriority": most} for namespace in NAMESPACES for most in (5, 40)),
    {"users": ["ada"], "preemptionPolicy": "Never"},
    {"projects": ["p"], "shares": 2},
    {"limit": {"gpus": 4}},
    *({"namespaces": [namespace], "guaranteed": {"gpus": 2}} for namespace in NAMESPACES),
    *({"namespaces": [namespace], "parent": "root", "guaranteed": {"gpus": 2}} for namespace in NAMESPACES),
)
_JOBS: Final = st.builds(
    lambda namespace, name, who, shape, workers, priority, more: {
        "namespace": namespace, "name": name, "user": who[0], "project": who[1], "gpu": shape, "workers": workers,
        "priority": priority, **more, **({"minWorkers": min(workers, 1)} if "minWorkers" in more else {}),
    },
    st.sampled_from(NAMESPACES),
    st.sampled_from(NAMES),
    st.sampled_from([("", ""), ("ada", ""), ("bob", "p"), ("ada", "q")]),
    st.sampled_from(SHAPES),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from([10, 10, 30, 60]),
    st.sampled_from(
        [
            {}, {}, {}, {}, {},
            {"preemptible": False},
            {"minWorkers": 1},
            {"onNoGPU": "RunOnCPU"},
            {"onNoGPU": "RunOnCPU", "onNoGPUAfterSeconds": 0},
            {"onNoGPU": "RunOnCPU", "onNoGPUAfterSeconds": 10},
            {"activeDeadlineSeconds": 3600},
            {"group": "g", "maxConcurrent": 1},
            {"group": "g"},
            {"dependencies": [{"name": "x"}]},
            {"dependencies": [{"name": "y", "condition": "Finished"}]},
            {"restart": "Worker", "backoffLimit": 3},
            {"backoffLimit": 1},
            {"suspend": True},
        ]
    ),
)  # fmt: skip
_EDITS: Final = (
    None, {"suspend": True}, {"suspend": False}, {"priority": 90}, {"priority": 0}, {"cancel": True}, {"gpu": "1"}
)  # fmt: skip
SETTLED: Final = -1.0
_PAUSES: Final = st.sampled_from([0.0, 0.3, 1.0, 3.0, SETTLED, SETTLED])


class WorldMachine(RuleBasedStateMachine):
    """Each rule is one change, or some time. What follows from it may still be on its way when the next one comes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.laws = Rules(self.world)
        # How many changes there were since everything had settled.
        self.changes = 0

    def teardown(self) -> None:
        if self.world.operator._task is not None:
            self.world.close()

    @initialize(
        seed=st.sampled_from([None, 1, 2, 3]), nodes=st.sampled_from(["a", "ab", "abc", "bc"]), slow=st.booleans()
    )
    def begin(self, seed: int | None, nodes: str, slow: bool) -> None:
        self.world.close()
        self.world = World(seed=seed, slow_cycles=slow)
        self.laws = Rules(self.world)
        for name in nodes:
            self.world.add_node(name, **NODES[name])
        self.world.pass_time(1.0)

    # --- changes -----------------------------------------------------------------------------------------------

    @rule(jobs=st.lists(_JOBS, min_size=1, max_size=3), seconds=_PAUSES)
    def submit(self, jobs: list[dict[str, Any]], seconds: float) -> None:
        for job in jobs:
            if self.world.server.find("gpujobs", f"{job['namespace']}/{job['name']}") is None:
                self.world.submit(**job)
                self.changes += 1
        self.pass_time(seconds)

    @rule(jobs=st.lists(_JOBS, min_size=2, max_size=5))
    def crowd(self, jobs: list[dict[str, Any]]) -> None:
        """Many jobs, and all that follows."""
        self.submit(jobs, 0.0)
        self.settle()

    @rule(data=st.data(), edit=st.sampled_from(_EDITS), seconds=_PAUSES)
    def change_job(self, data: st.DataObject, edit: dict[str, Any] | None, seconds: float) -> None:
        """Edit a job, or delete it."""
        key = self.draw(data, list(self.world.jobs()))
        if key is not None and edit is None:
            self.world.server.delete("gpujobs", key)
        elif key is not None and edit is not None and not ("gpu" in edit and self.world.cluster.is_running(key)):
            self.world.edit(key, **edit)
        self.pass_time(seconds)

    @rule(data=st.data(), exit_code=st.sampled_from([0, 0, 0, 1]), all_of_them=st.booleans(), seconds=_PAUSES)
    def end_of_pods(self, data: st.DataObject, exit_code: int, all_of_them: bool, seconds: float) -> None:
        """The pods of a job end, or one of them."""
        key = self.draw(data, [key for key in self.world.jobs() if self.world.cluster.is_running(key)])
        if key is not None:
            self.world.finish(key, exit_code=exit_code, most=None if all_of_them else 1)
        self.pass_time(seconds)

    @rule(name=st.sampled_from(["one", "two", "root"]), spec=st.sampled_from(_QUOTAS), seconds=_PAUSES)
    def change_limits(self, name: str, spec: dict[str, Any] | None, seconds: float) -> None:
        is_there = self.world.server.find("gpuquotas", name) is not None
        if spec is not None and spec.get("parent") != name:
            self.laws.is_calm = False
            self.world.set_quota(name, **spec)
        elif spec is None and is_there:
            self.world.server.delete("gpuquotas", name)
        self.changes += 1
        self.pass_time(seconds)

    @rule(
        name=st.sampled_from(sorted(NODES)),
        what=st.sampled_from(["comes or goes", "is cordoned", "is not"]),
        seconds=_PAUSES,
    )
    def change_node(self, name: str, what: str, seconds: float) -> None:
        is_there = self.world.server.find("nodes", name) is not None
        if is_there and what != "comes or goes":
            self.world.cordon(name, cordoned=what == "is cordoned")
        elif is_there:
            self.world.remove_node(name)
        else:
            self.world.add_node(name, **NODES[name])
        self.changes += 1
        self.pass_time(seconds)

    @rule(
        data=st.data(),
        namespace=st.sampled_from(NAMESPACES),
        project=st.sampled_from(["", "p"]),
        node=st.sampled_from(sorted(NODES)),
        shape=st.sampled_from(["1", "2", "0.5", None]),
    )
    def change_pods(self, data: st.DataObject, namespace: str, project: str, node: str, shape: str | None) -> None:
        """A pod of no GPUJob is bound where there is room, or goes."""
        if shape is None:
            pods = self.world.server.objects.get("pods", {})
            key = self.draw(data, [key for key, pod in pods.items() if "ownerReferences" not in pod["metadata"]])
            if key is not None:
                self.world.server.delete("pods", key)
            return
        self.laws.is_calm = False
        self.changes += self.world.add_pod_with_room(node, namespace=namespace, project=project, shape=shape)

    def draw(self, data: st.DataObject, keys: list[str]) -> str | None:
        self.changes += 1
        return data.draw(st.sampled_from(sorted(keys))) if keys else None

    # --- time --------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        self.laws.watch_notices()
        if seconds == SETTLED:
            self.settle()
        else:
            self.world.pass_time(seconds)

    @rule()
    def settle(self) -> None:
        self.laws.watch_notices()
        self.world.settle()
        rebuilt.check(self.world)
        self.laws.check_ends()
        self.laws.check_statuses()
        self.laws.check_workers()
        if self.changes <= 1:
            self.laws.check_starts()
        self.changes, self.laws.is_calm = 0, True

    @rule(writes=st.integers(0, 4))
    def kill(self, writes: int) -> None:
        """The operator is killed, now or after so many more writes."""
        if writes:
            self.world.kill_after(writes)
        else:
            self.world.restart()

    @precondition(lambda self: len(self.world.jobs()) > 2)
    @rule()
    def everything_goes(self) -> None:
        self.world.clear()
        self.world.settle()
        # Estimates look at jobs too, and what they keep lives until the cycle after the next.
        self.world.look()
        rebuilt.check_empty(self.world)
        for name in sorted(NODES):
            self.world.add_node(name, **NODES[name])
        self.changes = 0


TestWorld = WorldMachine.TestCase
TestWorld.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
