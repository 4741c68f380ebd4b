"""Moves of jobs of all kinds, on need and without rest: gangs, elastic jobs, arrays, shares and turns, on nodes that
disappear, under budgets that allow nothing or overlap.

What `tests.world.moving` says of a move holds for each, and the budget of the hour holds for all.
"""

from collections import deque
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, rule

from dovetail.jobs.moves import MoveRules
from tests.world.api import Values
from tests.world.moving import MachineOfMoves, request
from tests.world.operator import Operator
from tests.world.world import World

NODES: Final = ("a", "b", "c", "d")
PER_HOUR: Final = 4
HOSTILE: Final = MoveRules(
    mode="Apply", default="Restart", after_seconds=2.0, patience_seconds={200: 0.0}, rest_seconds=0.0, per_hour=PER_HOUR
)
KINDS: Final[dict[str, dict[str, Any]]] = {
    "single": {"gpu": "1"},
    "saves at its notice": {"gpu": "2", "checkpointIntervalSeconds": 0},
    "saves never": {"gpu": "1", "checkpointIntervalSeconds": 2_000_000_000},
    "share": {"gpu": "0.5"},
    "memory": {"gpu": "8G,0.3"},
    "in turns": {"gpu": "0.5", "mode": "TimeShared"},
    "gang": {"gpu": "1", "workers": 3},
    "elastic": {"gpu": "1", "workers": 3, "minWorkers": 1},
    "array": {"gpu": "1", "array": {"indexes": "0-2%2"}},
    "large": {"gpu": "4"},
    "large gang": {"gpu": "3", "workers": 2},
    "short": {"gpu": "4", "activeDeadlineSeconds": 30},
}


class HostileWorld(World):
    """The rules of moves hold for each operator, also for those after a kill."""

    def _make_operator(self, seed: int | None) -> Operator:
        made = super()._make_operator(seed)
        made.state.moves = HOSTILE
        return made


class Ends:
    """When jobs ended to move, by the counts in the statuses."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._counts: dict[str, int] = {}
        self.times = deque[datetime]()
        world.server.watches.append(self._look)

    def _look(self, plural: str, type_: str, values: Values) -> None:
        if plural != "gpujobs" or type_ == "DELETED":
            return
        count, uid = ((values.get("status") or {}).get("move") or {}).get("count", 0), values["metadata"]["uid"]
        self.times.extend([self._world.now()] * (count - self._counts.get(uid, 0)))
        self._counts[uid] = max(count, self._counts.get(uid, 0))

    @property
    def of_the_hour(self) -> int:
        return sum(at > self._world.now() - timedelta(hours=1) for at in self.times)


class MovesOfAllKinds(MachineOfMoves):
    """Each rule is one change, or some time."""

    nodes = NODES

    @initialize(seed=st.sampled_from([None, 1, 2]), slow=st.booleans())
    def begin(self, *, seed: int | None, slow: bool) -> None:
        self.begin_in(partial(HostileWorld, seed=seed, slow_cycles=slow))
        self.ends = Ends(self.world)
        self.made = 0
        for name in NODES:
            self.world.add_node(name, gpus=4)
        self.world.pass_time(1.0)

    @rule(
        kind=st.sampled_from(sorted(KINDS)),
        namespace=st.sampled_from(["team", "lab"]),
        priority=st.sampled_from([0, 200]),
    )
    def submit(self, kind: str, namespace: str, priority: int) -> None:
        self.made += 1
        self.world.submit(f"j{self.made}", namespace=namespace, priority=priority, template=_covered(), **KINDS[kind])
        self.world.pass_time(1.0)

    @rule(
        data=st.data(),
        edit=st.sampled_from(["request", "request ahead", "hold", "release", "Never", "delete", "finish"]),
    )
    def change(self, data: st.DataObject, edit: str) -> None:
        known = sorted(self.world.jobs())
        if not known:
            return
        key = data.draw(st.sampled_from(known))
        job = self.world.jobs()[key]
        match edit:
            case "request":
                request(self.world, key)
            case "request ahead":
                self.world.edit(key, moveRequestTime="2126-11-21T12:01:00Z")
            case "hold" | "release":
                self.world.edit(key, suspend=edit == "hold")
            case "Never":
                if job.status.move is None:
                    self.world.edit(key, moves="Never")
            case "delete":
                self.world.server.delete("gpujobs", key)
            case "finish":
                self.world.finish(key)
        self.world.pass_time(0.5)

    @rule(node=st.sampled_from(NODES), returns=st.booleans())
    def lose(self, node: str, returns: bool) -> None:
        """A node disappears with its pods, perhaps in the middle of a move, and may return later."""
        if self.world.server.find("nodes", node) is None:
            self.world.add_node(node, gpus=4)
        else:
            self.world.remove_node(node)
            self.world.pass_time(0.5)
            if returns:
                self.world.add_node(node, gpus=4)
        self.world.pass_time(1.0)

    @rule(namespace=st.sampled_from(["team", "lab"]), allowed=st.sampled_from([0, 1, 9]), name=st.sampled_from("pq"))
    def budget(self, namespace: str, allowed: int, name: str) -> None:
        """Two budgets may cover the same pods; one may allow no end at all."""
        key, status = f"{namespace}/{name}", {"disruptionsAllowed": allowed, "observedGeneration": 1}
        if self.world.server.find("poddisruptionbudgets", key) is None:
            meta = {"name": name, "namespace": namespace}
            spec = {"selector": {"matchLabels": {"app": "web"}}}
            self.world.server.create("poddisruptionbudgets", {"metadata": meta, "spec": spec, "status": status})
        else:
            self.world.server.change("poddisruptionbudgets", key, lambda each: each.update(status=status))
        self.world.pass_time(1.0)

    @rule(seconds=st.sampled_from([3.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def settle(self) -> None:
        """As the base's, without the end of each move: one may be planned on and on."""
        self.come_to_rest()

    @invariant()
    def the_budget_of_the_hour_is_kept(self) -> None:
        assert self.ends.of_the_hour <= PER_HOUR


def _covered() -> Values:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


TestMovesOfAllKinds = MovesOfAllKinds.TestCase
TestMovesOfAllKinds.settings = settings(max_examples=6, stateful_step_count=20, deadline=None)
