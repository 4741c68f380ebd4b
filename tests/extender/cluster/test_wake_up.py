"""Pods that were refused are woken when there is room for one of them by now, and not otherwise."""

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail_extender.decide.unschedulable import PAUSE_SECONDS, REMEMBERED, Waiting
from tests.background import eventually
from tests.clock import Clock
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_gpunode, make_node, make_pod, make_share
from tests.extender.harness import Face


class Scene:
    """A node `a` with one device that is held, and a pod that was refused there."""

    def __init__(self) -> None:
        self.ledger: Ledger = make_ledger(a=1, b=1)
        self.clock = Clock()
        self.waiting = Waiting(ledger=self.ledger, clock=self.clock)
        self.fill("a")
        self.refuse("pod", "a")

    def fill(self, node: str) -> None:
        hold_devices(self.ledger, node, 0, key=f"on-{node}")

    def empty(self, node: str) -> None:
        self.ledger.release(f"on-{node}")

    def refuse(self, uid: str, *nodes: str, gpu: str = "1") -> None:
        self.waiting.refused(uid, ask=make_ask(gpu), nodes=nodes)

    def wakes(self) -> bool:
        """Whether a wake-up is due, which is then sent."""
        due = self.waiting.wake_due()
        if due:
            self.waiting.woken()
        return due


def test_while_nothing_changes_nobody_is_woken() -> None:
    assert not Scene().wakes()


def test_a_departure_on_a_node_that_was_asked_about_wakes() -> None:
    scene = Scene()
    scene.empty("a")
    assert scene.wakes()


def test_a_departure_elsewhere_wakes_nobody() -> None:
    scene = Scene()
    scene.fill("b")
    scene.empty("b")
    assert not scene.wakes()


def test_room_that_is_too_small_wakes_nobody() -> None:
    scene = Scene()
    scene.waiting.forget("pod")
    scene.refuse("large", "a", gpu="2")
    scene.empty("a")
    assert not scene.wakes()


def test_room_that_is_taken_again_wakes_nobody() -> None:
    scene = Scene()
    scene.empty("a")
    scene.fill("a")
    assert not scene.wakes()


def test_room_that_is_taken_between_two_wake_ups_wakes_nobody() -> None:
    scene = Scene()
    scene.empty("a")
    assert scene.wakes()
    scene.fill("a")
    scene.clock.now += 100.0
    assert not scene.wakes()
    scene.empty("a")
    assert scene.wakes()


def test_a_node_that_came_after_the_refusal_was_not_asked_about() -> None:
    scene = Scene()
    for number in range(20):
        add_node(scene.ledger, f"new-{number}", gpus=1)
    assert not scene.wakes(), "kube-scheduler hears of new nodes itself"


def test_room_on_any_node_of_many_that_were_asked_about_wakes() -> None:
    for at in range(20):
        scene = Scene()
        for number in range(20):
            add_node(scene.ledger, f"n{number}", gpus=1)
            scene.fill(f"n{number}")
        scene.refuse("pod", *(f"n{number}" for number in range(20) if number % 2))
        scene.empty(f"n{at}")
        assert scene.wakes() == bool(at % 2)


def test_of_very_many_refused_pods_the_first_is_forgotten() -> None:
    scene = Scene()
    for number in range(REMEMBERED - 1):
        scene.refuse(f"p{number}", "b")
    scene.empty("a")
    assert scene.wakes()
    scene.refuse("one-more", "b")
    assert len(scene.waiting) == REMEMBERED
    scene.clock.now += 60
    assert not scene.wakes()


def test_a_pod_that_is_refused_again_counts_once_and_for_the_later_nodes() -> None:
    scene = Scene()
    scene.refuse("pod", "b")
    assert len(scene.waiting) == 1
    scene.empty("a")
    assert not scene.wakes()
    scene.fill("b")
    scene.empty("b")
    assert scene.wakes()


def test_a_pod_that_asks_for_more_the_second_time_is_not_woken_for_the_first_request() -> None:
    scene = Scene()
    scene.refuse("pod", "a", gpu="2")
    assert len(scene.waiting) == 1
    scene.empty("a")
    assert not scene.wakes()


def test_of_several_pods_one_that_is_due_is_enough_to_wake() -> None:
    scene = Scene()
    scene.empty("a")
    assert scene.wakes()
    scene.fill("a")
    scene.clock.now += 1.5
    scene.refuse("later", "a")
    scene.empty("a")
    assert scene.wakes(), "the first one is due in 2 s, and the second one now"


def test_a_hold_of_the_pod_s_own_is_room_for_it_alone() -> None:
    scene = Scene()
    scene.waiting.forget("pod")
    hold_devices(scene.ledger, "b", 0, key="plan/0")
    scene.waiting.refused("worker", ask=make_ask("1"), nodes=["b"], key="plan/0")
    scene.waiting.refused("other", ask=make_ask("1"), nodes=["b"])
    scene.ledger.set_devices("b", devices=[make_device("b", 0)])
    assert scene.wakes()
    scene.waiting.forget("worker")
    scene.clock.now += 10
    assert not scene.wakes()


def test_a_device_that_is_well_again_wakes() -> None:
    scene = Scene()
    scene.empty("a")
    scene.ledger.set_devices("a", devices=[make_device("a", 0, healthy=False)])
    scene.refuse("pod", "a")
    assert not scene.wakes()
    scene.ledger.set_devices("a", devices=[make_device("a", 0)])
    assert scene.wakes()


def test_wake_ups_are_a_second_apart() -> None:
    scene = Scene()
    scene.empty("a")
    assert scene.wakes()
    scene.fill("a")
    scene.refuse("other", "a")
    scene.empty("a")
    assert not scene.wakes()
    scene.clock.now += PAUSE_SECONDS
    assert scene.wakes()


def test_a_pod_that_is_not_asked_about_is_woken_ever_more_rarely() -> None:
    scene = Scene()
    scene.empty("a")
    seconds = []
    for second in range(200):
        scene.clock.now = float(second)
        if scene.wakes():
            seconds.append(second)
    assert seconds == [0, 2, 6, 14, 30, 62, 122, 182]


def test_a_pod_that_was_asked_about_again_is_woken_at_once_the_next_time() -> None:
    scene = Scene()
    for second in range(100):
        scene.clock.now = 10.0 * second
        scene.empty("a")
        assert scene.wakes()
        scene.fill("a")
        scene.refuse("pod", "a")


@pytest.mark.parametrize("owed", [True, False])
def test_a_pod_that_waits_no_longer_is_not_woken(owed: bool) -> None:
    scene = Scene()
    if owed:
        scene.empty("a")
        assert scene.waiting.wake_due()
        scene.waiting.failed()
        scene.clock.now += 10
    scene.waiting.forget("pod")
    scene.empty("a")
    assert not scene.wakes()
    assert len(scene.waiting) == 0


def test_after_a_failure_it_is_tried_again() -> None:
    scene = Scene()
    scene.empty("a")
    assert scene.waiting.wake_due()
    scene.waiting.failed()
    assert not scene.wakes()
    scene.clock.now += PAUSE_SECONDS
    assert scene.wakes()


def test_pods_of_many_kinds_have_their_turns() -> None:
    scene = Scene()
    scene.waiting.forget("pod")
    for number in range(2, 50):
        scene.refuse(f"large-{number}", "a", gpu=str(number))
    scene.refuse("pod", "a")
    scene.empty("a")
    looks = next(look for look in range(1, 100) if scene.wakes())
    assert 1 < looks < 10


async def test_a_hold_that_ends_wakes_the_pod_that_was_refused_for_it(api: ApiServer, face: Face) -> None:
    await face.prioritize(make_pod("first", "8", milli=8000), "a")
    await face.filter(make_pod("second", "8", milli=8000), "a")
    assert api.wakeups == 0
    face.clock.now += 31
    await face.chores()
    await eventually(lambda: api.wakeups == 1)


async def test_a_device_that_is_not_cordoned_any_more_wakes(api: ApiServer, face: Face) -> None:
    api.put("nodes", make_node("c"))
    api.put("gpunodes", make_gpunode("c", gpus=1) | {"spec": {"cordoned": ["c-0"]}})
    await eventually(lambda: "c" in face.ledger.nodes() and len(face.ledger.devices("c")) == 1)
    assert (await face.filter(make_pod(), "c"))["NodeNames"] is None
    api.put("gpunodes", make_gpunode("c", gpus=1))
    await eventually(lambda: api.wakeups == 1)


async def test_a_process_that_nobody_was_promised_anything_for_and_that_goes_wakes(api: ApiServer, face: Face) -> None:
    api.put("nodes", make_node("c"))
    api.put("gpunodes", make_gpunode("c", gpus=1, foreignMiB=30000))
    await eventually(lambda: "c" in face.ledger.nodes() and len(face.ledger.devices("c")) == 1)
    assert (await face.filter(make_share("p", 500), "c"))["NodeNames"] is None
    api.put("gpunodes", make_gpunode("c", gpus=1))
    await eventually(lambda: api.wakeups == 1)


async def test_a_bound_pod_that_goes_wakes_and_a_pod_that_is_gone_is_not_woken(api: ApiServer, face: Face) -> None:
    first, second = make_pod("first", "8", milli=8000), make_pod("second", "8", milli=8000)
    api.put("pods", first)
    api.put("pods", second)
    assert await face.bind(first, "a") == ""
    await face.filter(second, "a")
    api.delete("pods", "default/second")
    await eventually(lambda: face.extender.watching.cached(namespace="default", name="second") is None)
    api.delete("pods", "default/first")
    await eventually(lambda: face.ledger.claims() == [])
    await face.extender.waking.send_due()
    assert api.wakeups == 0
    await face.filter(make_pod("third", "16", milli=16000), "a", "b")
    await face.filter(second, "elsewhere")
    assert api.wakeups == 0


async def test_an_api_server_that_refuses_the_wake_up_is_asked_again(api: ApiServer, face: Face) -> None:
    api.wakeup_status = 404
    await face.prioritize(make_pod("first", "8", milli=8000), "a")
    await face.filter(make_pod("second", "8", milli=8000), "a")
    face.clock.now += 31
    await face.chores()
    await eventually(lambda: api.wakeups == 1)
    api.wakeup_status = None

    def woken_a_second_later() -> bool:
        # Again and again: the pause begins when the refusal is read, which may be after this line was reached.
        face.clock.now += PAUSE_SECONDS
        return face.extender.metrics.registry.get_sample_value("dovetail_extender_wakeups_total") == 1

    await eventually(woken_a_second_later)
