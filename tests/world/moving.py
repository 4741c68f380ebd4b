"""Moves in a world: what must hold at each write, and the rules that state machines of moves share.

A model knows what an owner and a person know: which jobs say that they may move, and for which one moves were
requested. No job ends for a move that it did not allow, none ends before room is held for it elsewhere, none runs
twice, and none is lost.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.world import rebuilt
from tests.world.api import Values
from tests.world.rules import Rules
from tests.world.world import World


def request(world: World, key: str) -> None:
    """Request moves for a job."""
    world.edit(key, moveRequestTime=world.time())


class Watch:
    """What must hold at each write, whoever makes it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._runs: dict[str, bool] = {}
        # By UID: how often a job was ended for a move.
        self.moved: dict[str, int] = {}
        world.server.watches.insert(0, self._look)

    def _look(self, plural: str, type_: str, values: Values) -> None:
        try:
            if plural == "jobs" and type_ != "DELETED":
                self._check_end(values)
            elif plural == "pods" and type_ != "DELETED":
                self._check_once(values)
        except AssertionError as broken:
            # The write belongs to the operator, which would try it again.
            self._world.failures.append(broken)

    def _check_end(self, child: Values) -> None:
        """A job that ends for another by its own move has room elsewhere by then, and has allowed it."""
        meta, runs = child["metadata"], not child["spec"].get("suspend")
        before, self._runs[meta["uid"]] = self._runs.get(meta["uid"], False), runs
        job = self._world.server.find("gpujobs", f"{meta['namespace']}/{meta['name']}")
        move = ((job or {}).get("status") or {}).get("move") or {}
        if job is None or runs or not before or not move.get("by") or job["spec"].get("suspend"):
            return
        if job["status"].get("phase") == "Starting":
            # It has moved, and has not run there yet: its plan has lost its room, and it gets another one.
            return
        assert move.get("reserved"), f"{meta['name']} ends, and no room is held for it: {move}"
        assert job["spec"].get("moves") == "Restart", f"{meta['name']} has not said that it may move"
        self.moved[job["metadata"]["uid"]] = self.moved.get(job["metadata"]["uid"], 0) + 1

    def _check_once(self, pod: Values) -> None:
        """A worker has one pod at a time that has not ended."""
        meta = pod["metadata"]
        if pod["status"]["phase"] != "Running" or not meta.get("ownerReferences"):
            return
        # A job that was made again under the name of one whose pods still end is another job.
        owner = meta["ownerReferences"][0]
        key = f"{meta['namespace']}/{owner['name']}"
        alike = [
            each["metadata"]["name"]
            for each in self._world.server.all("pods")
            if each["status"]["phase"] == "Running"
            and each["metadata"]["namespace"] == meta["namespace"]
            and [one["uid"] for one in each["metadata"].get("ownerReferences", ())] == [owner["uid"]]
            and each["metadata"]["annotations"].get("batch.kubernetes.io/job-completion-index")
            == meta["annotations"].get("batch.kubernetes.io/job-completion-index")
        ]
        assert len(alike) <= 1, f"{key} runs twice: {alike}"


class MachineOfMoves(RuleBasedStateMachine):
    """What happens to moves in each machine: their nodes are disturbed, the operator is killed, and all settles."""

    nodes: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def begin_in(self, make: Callable[[], World]) -> None:
        """Watch another world in place of the one before, which ends first: each patches the clock while it lives."""
        self.world.close()
        self.world = make()
        self.watch, self.laws = Watch(self.world), Rules(self.world)

    def teardown(self) -> None:
        if self.world.operator._task is not None:
            self.world.close()

    @rule(data=st.data(), what=st.sampled_from(["cordon", "open", "pod", "pods go"]))
    def disturb(self, data: Any, what: str) -> None:
        """A destination is closed, or pods of others take room."""
        there = [each for each in self.nodes if self.world.server.find("nodes", each)]
        if not there:
            return
        node = data.draw(st.sampled_from(there))
        if what == "pod":
            self.world.add_pod_with_room(node, namespace="lab")
        elif what == "pods go":
            self.world.remove_other_pods()
        else:
            self.world.cordon(node, cordoned=what == "cordon")
        self.world.pass_time(1.0)

    @rule(writes=st.integers(0, 6))
    def kill(self, writes: int) -> None:
        if writes:
            self.world.kill_after(writes)
        else:
            self.world.restart()

    def come_to_rest(self) -> None:
        """What has begun ends, and what caches hold and statuses count is right."""
        self.world.settle()
        self.world.settle()
        rebuilt.check(self.world)
        self.laws.check_ends()

    @rule()
    def settle(self) -> None:
        self.come_to_rest()
        for key, job in self.world.jobs().items():
            move = job.status.move
            assert move is None or not move.by or job.status.phase in {"Queued", "Preempted"}, f"{key}: {move}"
            assert move is None or move.count == self.watch.moved.get(job.metadata.uid, 0), f"{key}: {move}"

    @invariant()
    def nothing_has_failed(self) -> None:
        assert not self.world.failures, self.world.failures
