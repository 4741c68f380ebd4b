"""A bind by itself: what a lease, a deadline and each answer of the API server mean for the promise."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import GPUNode
from dovetail.kube.errors import Conflict, DeadlineExceeded, Forbidden, KubeError, NotFound, ServerFault, Status
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_extender.bind.binder import Binder, Outcome
from dovetail_extender.protocol import BindingArgs
from tests.extender.builders import make_pod
from tests.extender.decide.test_device_plugins import make_report, make_vendor_node
from tests.extender.desk import Desk, NoGPUNodes, NoJobs
from tests.faults import at_each_await

DEADLINE = 4.0
ASKED = make_pod("p", "2", milli=2000)
GONE = NotFound(Status(code=404))
SILENT = DeadlineExceeded("here", deadline_seconds=DEADLINE)


@dataclass(kw_only=True)
class Office:
    term: int | None = 7
    remaining_seconds: float = 15.0


@dataclass(kw_only=True)
class Pods:
    """What a read finds and a write answers; `meanwhile` runs while a read is on its way."""

    shown: Pod | None = None
    found: Pod | KubeError = field(default_factory=lambda: msgspec.convert(ASKED, Pod))
    answer: KubeError | None = None
    meanwhile: Callable[[], object] = lambda: None
    writes: list[tuple[str, Mapping[str, str], float]] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)

    def cached(self, *, namespace: str, name: str) -> Pod | None:
        assert (namespace, name) == ("default", "p")
        return self.shown

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        assert (namespace, name) == ("default", "p")
        self.deadlines.append(deadline_seconds)
        self.meanwhile()
        if isinstance(self.found, KubeError):
            raise self.found
        return self.found

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        assert pod.metadata.name == "p"
        self.writes.append((node, annotations, deadline_seconds))
        if self.answer is not None:
            raise self.answer


@dataclass(kw_only=True)
class Scene:
    pods: Pods = field(default_factory=Pods)
    office: Office = field(default_factory=Office)
    desk: Desk = field(default_factory=lambda: Desk(a=8, b=8))

    def __post_init__(self) -> None:
        self.binder = Binder(
            ledger=self.desk.ledger,
            pods=self.pods,
            jobs=NoJobs(),
            gpunodes=NoGPUNodes(),
            office=self.office,
            decisions=self.desk.decisions,
            deadline_seconds=DEADLINE,
            clock=self.desk.clock,
        )

    async def bind(self, node: str = "a", *, uid: str = "uid-p") -> Outcome:
        return await self.binder.bind(BindingArgs(pod_name="p", pod_namespace="default", pod_uid=uid, node=node))

    @property
    def promised(self) -> str:
        return self.desk.held("uid-p")[0]

    def passes(self, seconds: float) -> None:
        self.desk.clock.now += seconds


def bound(node: str = "a", *devices: str, uid: str = "uid-p") -> Pod:
    """The pod as it is after a bind, by us where it names devices."""
    held = [
        AllocatedDevice(uuid=device, index=at, share_milli=1000, memory_mib=32768) for at, device in enumerate(devices)
    ]
    allocation = Allocation(node=node, mode="Exclusive", containers=[ContainerAllocation(index=0, devices=held)])
    pod = make_pod("p", "2", milli=2000, nodeName=node, uid=uid)
    if devices:
        pod["metadata"]["annotations"] |= annotations_of(allocation)
    return msgspec.convert(pod, Pod)


async def test_a_bind_is_one_write_with_the_devices_and_the_term() -> None:
    scene = Scene()
    assert await scene.bind() == Outcome(result="bound")
    ((node, annotations, left),) = scene.pods.writes
    assert (node, annotations[names.TERM], left) == ("a", "7", DEADLINE)
    assert names.ALLOCATION in annotations
    assert (scene.promised, scene.binder.unseen, scene.binder.unsettled) == ("a", 1, 0)


@pytest.mark.parametrize(
    ("term", "remaining", "result"),
    [
        pytest.param(7, DEADLINE, "bound", id="the lease covers the write to its deadline"),
        pytest.param(7, DEADLINE - 0.1, "failed", id="the lease ends before the deadline"),
        pytest.param(None, 15.0, "failed", id="the lease is another's"),
    ],
)
async def test_nothing_is_sent_that_the_lease_does_not_cover(term: int | None, remaining: float, result: str) -> None:
    scene = Scene(office=Office(term=term, remaining_seconds=remaining))
    outcome = await scene.bind()
    assert outcome.result == result
    assert bool(scene.pods.writes) == (result == "bound")
    assert bool(scene.promised) == (result == "bound")
    assert ("lease does not cover" in outcome.error) == (result == "failed")


@pytest.mark.parametrize(("seconds", "result"), [(3.9, "bound"), (4.0, "failed"), (5.0, "failed")])
async def test_nothing_is_sent_after_the_deadline(seconds: float, result: str) -> None:
    scene = Scene()
    scene.pods.meanwhile = lambda: scene.passes(seconds)
    outcome = await scene.bind()
    assert outcome.result == result
    assert [round(left, 6) for _, _, left in scene.pods.writes] == (
        [round(DEADLINE - seconds, 6)] if result == "bound" else []
    )
    assert bool(scene.promised) == (result == "bound")


@pytest.mark.parametrize(
    ("found", "result", "says"),
    [
        pytest.param(GONE, "gone", "the pod was deleted", id="no such pod"),
        pytest.param(bound(uid="uid-other"), "gone", "the pod was deleted", id="another pod of that name"),
        pytest.param(SILENT, "failed", "the pod cannot be read: ", id="no answer"),
        pytest.param(bound("a"), "bound", "", id="it is bound as asked"),
        pytest.param(bound("b"), "conflict", "the pod is bound to b already", id="it is bound elsewhere"),
    ],
)
async def test_a_pod_that_the_cache_does_not_have_is_read_first(found: Pod | KubeError, result: str, says: str) -> None:
    scene = Scene(pods=Pods(found=found))
    outcome = await scene.bind()
    assert outcome.result == result
    assert outcome.error.startswith(says)
    assert (scene.pods.writes, scene.promised, scene.pods.deadlines) == ([], "", [DEADLINE])


async def test_a_pod_of_the_cache_is_not_read_unless_it_is_another() -> None:
    scene = Scene(pods=Pods(shown=msgspec.convert(ASKED, Pod)))
    assert (await scene.bind()).result == "bound"
    assert scene.pods.deadlines == []
    scene = Scene(pods=Pods(shown=bound(uid="uid-other")))
    assert (await scene.bind()).result == "bound"
    assert scene.pods.deadlines == [DEADLINE]


@pytest.mark.parametrize(
    ("answer", "result", "promised", "unsettled"),
    [
        pytest.param(SILENT, "unsettled", True, 1, id="no answer: it may have happened"),
        pytest.param(ServerFault(Status(code=500)), "unsettled", True, 1, id="a fault: it may have happened"),
        pytest.param(Forbidden(Status(code=403)), "failed", False, 0, id="refused: it did not happen"),
        pytest.param(GONE, "gone", False, 0, id="the pod was deleted"),
    ],
)
async def test_the_answer_to_the_write_decides_about_the_promise(
    answer: KubeError, result: str, promised: bool, unsettled: int
) -> None:
    scene = Scene(pods=Pods(shown=msgspec.convert(ASKED, Pod), answer=answer))
    assert (await scene.bind()).result == result
    assert (bool(scene.promised), scene.binder.unsettled) == (promised, unsettled)


@pytest.mark.parametrize(
    ("found", "result", "promised"),
    [
        pytest.param(bound("a", "a-0", "a-1"), "bound", True, id="bound here with our devices"),
        pytest.param(bound("a", "a-5", "a-6"), "conflict", True, id="bound here with other devices"),
        pytest.param(bound("a"), "conflict", True, id="bound here by somebody else"),
        pytest.param(bound("b"), "conflict", True, id="bound elsewhere"),
        pytest.param(msgspec.convert(ASKED, Pod), "conflict", False, id="not bound: being deleted, or gated"),
        pytest.param(bound(uid="uid-other"), "conflict", False, id="another pod of that name"),
        pytest.param(GONE, "gone", False, id="deleted"),
        pytest.param(SILENT, "unsettled", True, id="no answer"),
    ],
)
async def test_after_a_conflict_a_read_decides(found: Pod | KubeError, result: str, promised: bool) -> None:
    pods = Pods(shown=msgspec.convert(ASKED, Pod), found=found, answer=Conflict(Status(code=409, message="taken")))
    scene = Scene(pods=pods)
    outcome = await scene.bind()
    assert outcome.result == result
    assert bool(scene.promised) == promised
    assert scene.pods.deadlines == [DEADLINE]


async def test_the_read_after_a_conflict_has_what_is_left_of_the_deadline_and_a_tenth_of_a_second_at_least() -> None:
    for seconds, left in ((1.0, 3.0), (4.5, 0.1)):
        scene = Scene(pods=Pods(shown=msgspec.convert(ASKED, Pod), answer=Conflict(Status(code=409))))
        written = scene.pods.bind

        async def late(
            pod: Pod, *, _written: Any = written, _scene: Scene = scene, _s: float = seconds, **how: Any
        ) -> None:
            _scene.passes(_s)
            await _written(pod, **how)

        scene.pods.bind = late  # type: ignore[method-assign]
        await scene.bind()
        assert scene.pods.deadlines == [left]


async def test_an_unsettled_bind_may_be_repeated_to_the_same_node_and_to_no_other() -> None:
    scene = Scene(pods=Pods(shown=msgspec.convert(ASKED, Pod), answer=SILENT))
    await scene.bind()
    devices = scene.desk.devices("uid-p")
    assert await scene.bind("b") == Outcome(result="refused", error="the pod's bind to a is not settled yet")
    scene.office.term = None
    assert (await scene.bind()).result == "failed"
    assert scene.desk.devices("uid-p") == devices, "the earlier bind may have happened"
    scene.office.term = 8
    scene.pods.answer = None
    assert (await scene.bind()).result == "bound"
    assert (scene.desk.devices("uid-p"), scene.binder.unsettled) == (devices, 0)


async def test_an_unsettled_bind_of_a_pod_that_is_deleted_promises_nothing_any_more() -> None:
    scene = Scene(pods=Pods(answer=SILENT))
    assert (await scene.bind()).result == "unsettled"
    scene.pods.answer = GONE
    assert (await scene.bind()).result == "gone"
    assert (scene.promised, scene.binder.unseen) == ("", 0)


async def test_a_request_that_cannot_be_read_is_refused_and_its_hold_ends() -> None:
    pod = make_pod("p", "1X", milli=2000)
    scene = Scene(pods=Pods(shown=msgspec.convert(pod, Pod)))
    outcome = await scene.bind()
    assert (outcome.result, scene.pods.writes, scene.promised) == ("refused", [], "")
    assert 'unknown memory unit "X"' in outcome.error


async def test_draining_waits_for_binds_and_outlives_their_failure() -> None:
    scene = Scene(pods=Pods(shown=msgspec.convert(ASKED, Pod)))

    async def breaks(pod: Pod, **_: Any) -> None:
        raise RuntimeError("a bug")

    scene.pods.bind = breaks  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        await scene.bind()
    await scene.binder.drain()


class SlowPods(Pods):
    """Pods whose reads and writes take several turns of the loop, and say when they are cut off."""

    cut_off: int = 0

    async def _takes(self) -> None:
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cut_off += 1
            raise

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        await self._takes()
        return await super().read(namespace=namespace, name=name, deadline_seconds=deadline_seconds)

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        await self._takes()
        await super().bind(pod, node=node, annotations=annotations, deadline_seconds=deadline_seconds)
        await self._takes()


@pytest.mark.parametrize("callers", [1, 2, 3])
@pytest.mark.parametrize(
    ("answer", "result"), [(None, "bound"), (NotFound(Status(code=404)), "gone"), (SILENT, "unsettled")]
)
async def test_a_bind_ends_as_it_began_at_whatever_moment_those_who_asked_leave(
    callers: int, answer: KubeError | None, result: str
) -> None:
    async def make() -> Scene:
        return Scene(pods=SlowPods(answer=answer))

    async def journey(scene: Scene) -> None:
        if scene.pods.writes:
            # The write is on its way, or was answered: it is not sent again before its end.
            await scene.binder.drain()
            return
        outcomes = await asyncio.gather(*(scene.bind() for _ in range(callers)))
        assert {each.result for each in outcomes} == {result}

    async def end(scene: Scene) -> object:
        await scene.binder.drain()
        assert isinstance(scene.pods, SlowPods)
        return scene.pods.cut_off, len(scene.pods.writes), scene.promised, scene.binder.unseen, scene.binder.unsettled

    assert await at_each_await(make, journey=journey, end=end) > 0


async def test_who_leaves_takes_the_answer_from_nobody_else_who_asked_for_the_same_bind() -> None:
    scene = Scene(pods=SlowPods())
    first, second = (asyncio.create_task(scene.bind()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).result == "bound"
    assert len(scene.pods.writes) == 1


async def test_a_plugin_s_devices_need_no_annotation_that_names_their_container() -> None:
    """Without one, several containers are no question, and a name may be long."""
    scene = Scene()
    scene.desk.view.node_changed(msgspec.convert(make_vendor_node(), Node))
    scene.desk.view.gpunode_changed(msgspec.convert(make_report(), GPUNode))
    pod = make_pod("p", "2(V100)", limits={"nvidia.com/gpu": "2"})
    pod["spec"]["containers"] += [{"name": "c" * 63}]
    scene.pods.found = msgspec.convert(pod, Pod)
    scene.binder._delivery = "NRI"
    found = await scene.bind("v")
    assert (found.result, found.error, len(scene.pods.writes)) == ("bound", "", 1)
