"""What is held is what was asked, by pods that exist or can still come: a state machine over every kind of guest.

Objects of each kind are scaled, suspended, released, orphaned and deleted, their pods end, are deleted and come again,
templates change, strangers write pods with a guest's run, and the operator and the extender restart in between. The
real watchers, gates, queue, quotas and extender follow. `Wishes` is the model beside them: what each object asks for
now, and nothing else.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail import names
from tests.world.api import Values
from tests.world.cluster import _key, _phase
from tests.world.guests import NAMESPACE, GuestWorld
from tests.world.kinds import GANG, GROUP, GROUPS, KINDS, MILLI, least_of

OBJECTS: Final = ("x", "y", "z")
GPUS: Final = {"a": 4, "b": 2}
_OVER: Final = frozenset({"Succeeded", "Failed"})
# Longer than a group keeps the room of a pod that is missing.
_GROUPS_SECONDS: Final = 25.0
SETTLED: Final = -1.0
_PAUSES: Final = st.sampled_from([0.0, 0.6, SETTLED, SETTLED, SETTLED])
_KINDS: Final = st.sampled_from([*KINDS, *GROUPS])
_SIZES: Final = st.sampled_from(["1", "1", "2", "0.5"])


@dataclass
class Wish:
    """What one object asks for: so many pods of that size, and at least so many at its start.

    `sizes` are all that it has asked for.
    """

    kind: str
    count: int
    gpu: str
    sizes: set[str] = field(default_factory=set)
    least: int = 0


class Wishes:
    """The model. It knows no queue, plan or seat."""

    def __init__(self) -> None:
        self.alive: dict[str, Wish] = {}
        self.limit: int | None = None

    def most_milli(self) -> int:
        """The most that all objects may hold together."""
        return sum(wish.count * max(MILLI[gpu] for gpu in wish.sizes) for wish in self.alive.values())


class HeldMachine(RuleBasedStateMachine):
    """Each rule is one change, and some time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = self.make_world()
        self.wishes = Wishes()
        # Of the UIDs of pods: the size that each was made with. The pods of strangers, and those left behind.
        self.strangers: set[str] = set()
        self.left_behind: set[str] = set()
        # The gangs that have started: what their objects say later holds for no pod that runs.
        self.started: set[str] = set()

    def make_world(self, *, seed: int | None = None) -> GuestWorld:
        """A world without objects; the seed draws what is late in it."""
        return GuestWorld(seed=seed)

    def teardown(self) -> None:
        self.world.close()

    @initialize(seed=st.sampled_from([None, 1, 2]), kind=_KINDS, count=st.integers(1, 4), gpu=_SIZES)
    def begin(self, seed: int | None, kind: str, count: int, gpu: str) -> None:
        """An object is at work."""
        self.world.close()
        self.world = self.make_world(seed=seed)
        for name, gpus in GPUS.items():
            self.world.add_node(name, gpus=gpus)
        self.world.pass_time(1.0)
        self.create(name="x", kind=kind, count=count, gpu=gpu, seconds=SETTLED)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; with `SETTLED` until everything is as it should be."""
        if seconds == SETTLED:
            self.settle()
        else:
            self.world.pass_time(seconds)

    # --- changes -----------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(OBJECTS),
        kind=_KINDS,
        count=st.integers(1, 4),
        gpu=_SIZES,
        seconds=_PAUSES,
    )
    def create(self, name: str, kind: str, count: int, gpu: str, seconds: float) -> None:
        if name in self.wishes.alive or self._pods(name) or self.world.server.find("jobsets", f"{NAMESPACE}/{name}"):
            # The JobSet of a TrainJob that was orphaned is still there.
            return
        if kind in GROUPS:
            self._more_of(kind, name=name, gpu=gpu, count=count)
        else:
            self.world.cluster.create(KINDS[kind], name=name, gpu=gpu, count=count)
        self.wishes.alive[name] = Wish(
            kind=kind, count=count, gpu=gpu, sizes={gpu}, least=least_of(count) if kind == GANG else 0
        )
        self.pass_time(seconds)

    @rule(data=st.data(), to=st.integers(0, 5), seconds=_PAUSES)
    def scale(self, data: st.DataObject, to: int, seconds: float) -> None:
        name = self._draw(data, groups=False)
        if name is None:
            return
        wish = self.wishes.alive[name]
        kind = KINDS[wish.kind]
        self.world.server.change(kind.plural, f"{NAMESPACE}/{name}", lambda found: kind.scale(found["spec"], to=to))
        wish.count = to
        self.pass_time(seconds)

    @rule(data=st.data(), to=st.integers(0, 2))
    def scale_down(self, data: st.DataObject, to: int) -> None:
        """What is given back is free once everything has followed."""
        self.scale(data, to, SETTLED)

    @rule(data=st.data(), held=st.booleans(), seconds=_PAUSES)
    def hold_or_release(self, data: st.DataObject, held: bool, seconds: float) -> None:
        """`gjob hold` and `gjob release`, on one of its records."""
        records = [each for each in self.world.server.all("gpujobs") if not _is_over(each)]
        if records:
            found = data.draw(st.sampled_from(sorted(_key(each) for each in records)))
            self.world.server.change("gpujobs", found, lambda job: job["spec"].update(suspend=held))
        self.pass_time(seconds)

    @rule(data=st.data(), seconds=_PAUSES)
    def suspend(self, data: st.DataObject, seconds: float) -> None:
        """Its owner suspends the object; it waits for its turn again."""
        name = self._draw(data, groups=False)
        kind = None if name is None else KINDS[self.wishes.alive[name].kind]
        if name is not None and kind is not None and kind.path:

            def hold(found: Values) -> None:
                at = found["spec"]
                for step in kind.path[:-1]:
                    at = at.setdefault(step, {})
                at[kind.path[-1]] = True

            self.world.server.change(kind.plural, f"{NAMESPACE}/{name}", hold)
        self.pass_time(seconds)

    @rule(data=st.data(), orphan=st.booleans(), seconds=_PAUSES)
    def delete(self, data: st.DataObject, orphan: bool, seconds: float) -> None:
        name = self._draw(data)
        if name is None:
            return
        wish = self.wishes.alive.pop(name)
        self.started.discard(name)
        if wish.kind in GROUPS:
            for pod in self._pods(name):
                self.world.cluster._delete("pods", pod)
            if wish.kind == GANG and self.world.server.find("podgroups", f"{NAMESPACE}/{name}") is not None:
                self.world.server.delete("podgroups", f"{NAMESPACE}/{name}")
        elif orphan:
            self.left_behind |= {pod["metadata"]["uid"] for pod in self._pods(name)}
            self.world.cluster.orphan(KINDS[wish.kind].plural, f"{NAMESPACE}/{name}")
        else:
            self.world.server.delete(KINDS[wish.kind].plural, f"{NAMESPACE}/{name}")
        self.pass_time(seconds)

    @rule(data=st.data(), gpu=st.sampled_from(["2", "0.5"]), seconds=_PAUSES)
    def change_template(self, data: st.DataObject, gpu: str, seconds: float) -> None:
        name = self._draw(data, groups=False)
        if name is None or self.wishes.alive[name].kind == "TrainJob":
            return
        wish = self.wishes.alive[name]
        kind = KINDS[wish.kind]
        self.world.server.change(
            kind.plural, f"{NAMESPACE}/{name}", lambda found: kind.retemplate(found["spec"], gpu=gpu)
        )
        wish.gpu = gpu
        wish.sizes.add(gpu)
        self.pass_time(seconds)

    @rule(data=st.data(), how=st.sampled_from(["delete", "fail", "succeed"]), seconds=_PAUSES)
    def end_pod(self, data: st.DataObject, how: str, seconds: float) -> None:
        """A pod ends or is deleted; its controller may make another one."""
        pods = [each for each in self.world.server.all("pods") if _phase(each) == "Running"]
        going = [each for each in pods if "deletionTimestamp" not in each["metadata"]]
        if going:
            key = data.draw(st.sampled_from(sorted(_key(each) for each in going)))
            if how == "delete":
                self.world.cluster._delete("pods", self.world.server.objects["pods"][key])
            else:
                self.world.cluster.end_worker(key, exit_code=int(how == "fail"))
        self.pass_time(seconds)

    @rule(data=st.data())
    def clear_ended(self, data: st.DataObject) -> None:
        """The garbage collector of pods, or somebody, deletes a pod that has ended."""
        ended = sorted(_key(each) for each in self.world.server.all("pods") if _phase(each) in _OVER)
        if ended:
            self.world.server.delete("pods", data.draw(st.sampled_from(ended)))

    @rule(data=st.data(), seconds=_PAUSES)
    def replace_pod_of_group(self, data: st.DataObject, seconds: float) -> None:
        """The owner of a group creates a pod of it again."""
        groups = sorted(name for name, wish in self.wishes.alive.items() if wish.kind in GROUPS)
        if groups:
            name = data.draw(st.sampled_from(groups))
            wish = self.wishes.alive[name]
            index = data.draw(st.integers(1, wish.count + 1))
            if wish.kind == GANG:
                # It is one more, which starts by itself.
                wish.count = max(wish.count, index + 1)
            self._more_of(wish.kind, name=name, gpu=wish.gpu, count=wish.count, index=index)
        self.pass_time(seconds)

    @rule(data=st.data(), least=st.integers(1, 4), seconds=_PAUSES)
    def change_gang(self, data: st.DataObject, least: int, seconds: float) -> None:
        """The object of a gang asks for other numbers of pods to start together."""
        gangs = sorted(name for name, wish in self.wishes.alive.items() if wish.kind == GANG)
        if gangs:
            name = data.draw(st.sampled_from(gangs))
            self.wishes.alive[name].least = min(least, self.wishes.alive[name].count)
            policy = {"gang": {"minCount": self.wishes.alive[name].least}}
            self.world.server.change(
                "podgroups", f"{NAMESPACE}/{name}", lambda found: found["spec"].update(schedulingPolicy=policy)
            )
        self.pass_time(seconds)

    @rule(data=st.data(), gpu=st.sampled_from(["2", "1", "0.5"]), seconds=_PAUSES)
    def forge(self, data: st.DataObject, gpu: str, seconds: float) -> None:
        """A stranger's pod says that it is one of a guest's; the guest's own pod may go to make place for it."""
        runs = {each["metadata"]["labels"].get(names.RUN, "") for each in self.world.server.all("pods")}
        runs = {run for run in runs if run.startswith("run-")}
        if not runs:
            return
        before = set(self.world.server.objects["pods"])
        run = data.draw(st.sampled_from(sorted(runs)))
        self.world.cluster.forge(run=run, gpu=gpu)
        (made,) = set(self.world.server.objects["pods"]) - before
        self.strangers.add(self.world.server.objects["pods"][made]["metadata"]["uid"])
        own = [pod for pod in self.world.server.all("pods") if pod["metadata"]["labels"].get(names.RUN) == run]
        if (victim := next((pod for pod in own if _phase(pod) == "Running"), None)) is not None:
            self.world.cluster._delete("pods", victim)
        self.pass_time(seconds)

    @rule(data=st.data())
    def take_owner(self, data: st.DataObject) -> None:
        """A user removes the owner of a record."""
        if records := sorted(self.world.server.objects.get("gpujobs", {})):
            key = data.draw(st.sampled_from(records))
            self.world.server.change("gpujobs", key, lambda job: job["metadata"].update(ownerReferences=[]))
        self.world.pass_time(1.0)

    @rule(gpus=st.sampled_from([None, 1, 3]), seconds=_PAUSES)
    def limit(self, gpus: int | None, seconds: float) -> None:
        if gpus is not None:
            self.world.set_quota("q", namespaces=[NAMESPACE], limit={"gpus": gpus})
        elif self.world.server.find("gpuquotas", "q") is not None:
            self.world.server.delete("gpuquotas", "q")
        self.wishes.limit = gpus
        self.pass_time(seconds)

    @rule(writes=st.integers(0, 3))
    def kill(self, writes: int) -> None:
        """The operator is killed, now or after so many more writes."""
        if writes:
            self.world.kill_after(writes)
        else:
            self.world.restart()

    @rule()
    def restart_extender(self) -> None:
        self.world.cluster.restart_extender()

    # --- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def each_seat_has_the_size_of_its_record(self) -> None:
        """At any time: no pod has a seat of a record that asks for something else."""
        sizes = {job["metadata"]["uid"]: job["spec"].get("gpu") for job in self.world.server.all("gpujobs")}
        for pod in self.world.server.all("pods"):
            seat = pod["metadata"].get("annotations", {}).get(names.SEAT)
            size = sizes.get(seat.rpartition("/")[0]) if seat is not None else None
            if size is not None:
                asked = pod["metadata"]["annotations"].get(names.REQUEST)
                assert asked == size, f"{pod['metadata']['name']} asks {asked}, and its seat has {size}"

    def settle(self) -> None:
        """Everything follows that follows. What is held then is what the pods ask for, one by one."""
        self.world.settle()
        self.world.pass_time(_GROUPS_SECONDS)
        self.world.settle()
        self.check_holds()
        self.check_records()
        self.check_counts()
        self.check_gangs()
        self.check_quota()

    def check_holds(self) -> None:
        """Each hold of the extender is for a pod that exists and waits for its node."""
        waiting = Counter(
            pod["metadata"]["annotations"][names.SEAT]
            for pod in self.world.server.all("pods")
            if names.SEAT in pod["metadata"]["annotations"]
            and not pod["spec"].get("nodeName")
            and _phase(pod) not in _OVER
        )
        for key in self.world.cluster.extender.holds():
            assert waiting[key], f"{key} is held, and no pod has come for it"
        planned = self._planned()
        for uid, kept in planned.items():
            for worker in kept:
                there = [pod for pod in self._living() if self._seat(pod) == f"{uid}/{worker}"]
                assert there, f"worker {worker} of {uid} is planned, and has no pod"

    def check_records(self) -> None:
        """Each record has its object, and an object that is gone has none."""
        for job in self.world.server.all("gpujobs"):
            name = job["metadata"]["name"]
            owners = job["metadata"].get("ownerReferences", [])
            assert owners, f"{name} has no owner"
            assert not all(self.world.cluster._is_gone(owner, of=job) for owner in owners), f"{name} outlives its owner"

    def check_counts(self) -> None:
        """No object has more pods with a node than it asks for, and all of them run where all fit."""
        for name, wish in self.wishes.alive.items():
            bound = [pod for pod in self._pods(name) if pod["spec"].get("nodeName") and pod in self._living()]
            own = [pod for pod in bound if pod["metadata"]["annotations"].get(names.REQUEST)]
            assert len(own) <= wish.count, f"{name} has {len(own)} pods, and asks for {wish.count}"
        if self.wishes.limit is None and 2 * len(self.wishes.alive) > 0 and self._fits():
            for name, wish in self.wishes.alive.items():
                if wish.sizes == {wish.gpu} and wish.kind not in GROUPS and not self._is_held(name):
                    running = [pod for pod in self._pods(name) if _phase(pod) == "Running"]
                    with_gpus = [pod for pod in running if pod["metadata"]["annotations"].get(names.REQUEST)]
                    assert len(with_gpus) == wish.count, f"{name}: {len(with_gpus)} run, {wish.count} fit"

    def check_gangs(self) -> None:
        """A gang of which no pod has ended runs with at least what starts together, or not at all."""
        for name, wish in self.wishes.alive.items():
            pods = self._pods(name)
            if wish.kind != GANG or len(pods) < wish.count or any(pod not in self._living() for pod in pods):
                continue
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
            if name not in self.started:
                assert not bound or bound >= wish.least, f"{name}: {bound} run, {wish.least} start together"
            if bound:
                self.started.add(name)

    def check_quota(self) -> None:
        """The quota's use is what the pods hold and what is held for those that come."""
        quota = self.world.server.find("gpuquotas", "q")
        if quota is None:
            return
        ledger = self.world.cluster.extender.ledger
        milli = sum(claim.milli for claim in ledger.claims() if ledger.claim(claim.key) is not None)
        assert quota["status"].get("gpus", 0.0) == milli / 1000, f"{quota['status']} and {milli} milli"

    def _more_of(self, kind: str, *, name: str, gpu: str, count: int, index: int = 0) -> None:
        create = self.world.cluster.create_gang if kind == GANG else self.world.cluster.create_group
        create(name=name, gpu=gpu, count=count, index=index)

    # --- looking -----------------------------------------------------------------------------------------------

    def _draw(self, data: st.DataObject, *, groups: bool = True) -> str | None:
        found = sorted(name for name, wish in self.wishes.alive.items() if groups or wish.kind not in GROUPS)
        return data.draw(st.sampled_from(found)) if found else None

    def _pods(self, name: str) -> list[Values]:
        return [pod for pod in self.world.server.all("pods") if pod["metadata"]["name"].startswith(f"{name}-")]

    def _living(self) -> list[Values]:
        return [pod for pod in self.world.server.all("pods") if _phase(pod) not in _OVER]

    def _seat(self, pod: Values) -> str:
        return str(pod["metadata"].get("annotations", {}).get(names.SEAT, ""))

    def _planned(self) -> dict[str, list[int]]:
        """The workers of each record whose room its plan keeps."""
        found = {}
        for job in self.world.server.all("gpujobs"):
            plan: Any = job.get("status", {}).get("placement")
            if plan is not None:
                workers = range(sum(node["workers"] for node in plan["nodes"]))
                found[job["metadata"]["uid"]] = [each for each in workers if each not in plan.get("released", [])]
        return found

    def _is_held(self, name: str) -> bool:
        """Whether a user holds one of its records, or has cancelled it."""
        jobs = self.world.server.all("gpujobs")
        return any(job["spec"].get("suspend") and f"-{name}" in job["metadata"]["name"] for job in jobs)

    def _fits(self) -> bool:
        """Whether all that is asked for fits at the same time, however it is placed."""
        if self.left_behind & {pod["metadata"]["uid"] for pod in self._living()}:
            return False
        if self.strangers & {pod["metadata"]["uid"] for pod in self._living()}:
            return False
        wishes = [wish for wish in self.wishes.alive.values() if wish.count]
        return all(wish.gpu == "1" for wish in wishes) and sum(wish.count for wish in wishes) <= sum(GPUS.values())


def _is_over(job: Values) -> bool:
    return (job.get("status") or {}).get("phase") in {"Succeeded", "Failed", "Cancelled"}


TestHeld = HeldMachine.TestCase
TestHeld.settings = settings(max_examples=30, stateful_step_count=8, deadline=None)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_pod_of_a_group_has_a_seat_of_its_own_though_two_open_its_gates(seed: int) -> None:
    """The reconciler opens them when the plan is written, and the keeper when the pods are seen."""
    machine = HeldMachine()
    try:
        machine.begin(seed=seed, kind=GROUP, count=3, gpu="1")
        seats = [machine._seat(pod) for pod in machine._living()]
    finally:
        machine.teardown()
    assert len(set(seats)) == 3


class _Drawn:
    """Draws what a found example drew."""

    def __init__(self, value: str) -> None:
        self._value = value

    def draw(self, _strategy: object) -> str:
        return self._value


def test_a_gate_that_could_not_be_opened_is_tried_again_when_its_pod_is_seen() -> None:
    """The replacement of a failed pod is admitted before the operator's watch of pods has brought it."""
    machine = HeldMachine()
    try:
        machine.begin(seed=2, kind="RayCluster", count=4, gpu="2")
        machine.create(name="y", kind="Deployment", count=3, gpu="2", seconds=SETTLED)
        machine.end_pod(data=_Drawn("team/y-w-112"), how="fail", seconds=0.0)  # type: ignore[arg-type]
        machine.change_template(data=_Drawn("x"), gpu="0.5", seconds=SETTLED)  # type: ignore[arg-type]
    finally:
        machine.teardown()


def test_a_record_without_owner_ends_though_its_object_asks_for_no_pods() -> None:
    machine = HeldMachine()
    try:
        machine.begin(seed=1, kind="JobSet", count=2, gpu="1")
        machine.scale(data=_Drawn("x"), to=0, seconds=SETTLED)  # type: ignore[arg-type]
        machine.take_owner(data=_Drawn("team/jobset-x"))  # type: ignore[arg-type]
        machine.settle()
        assert machine.world.server.all("gpujobs") == []
    finally:
        machine.teardown()


@pytest.mark.parametrize("pod", ["team/x-0", "team/x-2"])
def test_a_group_gives_back_the_seat_of_a_pod_that_was_deleted_whichever_it_was(pod: str) -> None:
    """Also that of the pod that was written last, without which the group seems to be older."""
    machine = HeldMachine()
    try:
        machine.begin(seed=None, kind=GROUP, count=3, gpu="0.5")
        machine.settle()
        machine.end_pod(data=_Drawn(pod), how="delete", seconds=SETTLED)  # type: ignore[arg-type]
    finally:
        machine.teardown()


@pytest.mark.parametrize("kind", GROUPS)
def test_a_pod_takes_the_seat_of_the_only_one_that_has_started_and_failed(kind: str) -> None:
    """The failed pod is still there: the record is the group's as long as one of its pods is."""
    machine = HeldMachine()
    try:
        machine.begin(seed=None, kind=kind, count=1, gpu="1")
        machine._more_of(kind, name="x", gpu="1", count=1, index=1)
        machine.wishes.alive["x"].count = 2
        machine.end_pod(data=_Drawn("team/x-0"), how="fail", seconds=SETTLED)  # type: ignore[arg-type]
        (running,) = machine._living()
        assert running["spec"]["nodeName"]
    finally:
        machine.teardown()
