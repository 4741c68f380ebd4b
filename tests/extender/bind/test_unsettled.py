"""Binds that the cache does not show yet: when a read settles them, and when their promise stays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.kube.errors import DeadlineExceeded, KubeError, NotFound, Status
from dovetail_extender.bind.unsettled import READ_SECONDS, SETTLE_SECONDS, Settling
from tests.clock import Clock
from tests.extender.builders import make_pod

UNBOUND = msgspec.convert(make_pod(), Pod)
BOUND = msgspec.convert(make_pod(nodeName="a"), Pod)
ANOTHER = msgspec.convert(make_pod(uid="uid-another", nodeName="a"), Pod)
GONE = NotFound(Status(code=404))


@dataclass(kw_only=True)
class Pods:
    """The pod in the cache and as a read finds it; `meanwhile` runs while a read is on its way."""

    shown: Pod | None = UNBOUND
    found: Pod | KubeError = UNBOUND
    meanwhile: Callable[[], object] = lambda: None
    reads: int = 0

    def cached(self, *, namespace: str, name: str) -> Pod | None:
        return self.shown if (namespace, name) == ("default", "p") else None

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        assert (namespace, name in {"p", "q"}, deadline_seconds) == ("default", True, 4)
        self.reads += 1
        self.meanwhile()
        if isinstance(self.found, KubeError):
            raise self.found
        return self.found

    async def bind(self, pod: Pod, **_: Any) -> None:
        raise NotImplementedError


@dataclass(kw_only=True)
class Scene:
    """One pod with a promise on node a, and a bind of it that was sent at the clock's start."""

    pods: Pods = field(default_factory=Pods)
    clock: Clock = field(default_factory=Clock)
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.settling = Settling(ledger=self.ledger, pods=self.pods, deadline_seconds=4, clock=self.clock)
        self.promise()
        self.settling.record_bind(UNBOUND, known=False)

    def promise(self) -> None:
        self.ledger.commit(Claim(key="uid-p", node="a", cpu_milli=1000))

    @property
    def promised(self) -> bool:
        return self.ledger.claim("uid-p") is not None

    async def settle(self, *, after: float, running: tuple[str, ...] = ()) -> None:
        self.clock.now += after
        await self.settling.settle(running=running)


@pytest.mark.parametrize(("after", "reads"), [(READ_SECONDS - 0.1, 0), (READ_SECONDS, 1)])
async def test_a_read_asks_once_the_cache_has_had_five_seconds(after: float, reads: int) -> None:
    scene = Scene()
    await scene.settle(after=after)
    assert scene.pods.reads == reads
    assert scene.promised


@pytest.mark.parametrize(
    ("found", "after", "promised"),
    [
        pytest.param(GONE, READ_SECONDS, False, id="the pod was deleted"),
        pytest.param(ANOTHER, READ_SECONDS, False, id="another pod has its name"),
        pytest.param(UNBOUND, SETTLE_SECONDS - 0.1, True, id="not bound, but the write may still arrive"),
        pytest.param(UNBOUND, SETTLE_SECONDS, False, id="not bound, and the write can no longer arrive"),
        pytest.param(BOUND, SETTLE_SECONDS, True, id="bound: the cache will show it"),
        pytest.param(
            DeadlineExceeded("here", deadline_seconds=4), SETTLE_SECONDS, True, id="the API server does not answer"
        ),
    ],
)
async def test_what_a_read_finds_decides_about_the_promise(
    found: Pod | KubeError, after: float, promised: bool
) -> None:
    scene = Scene(pods=Pods(found=found))
    await scene.settle(after=after)
    assert scene.promised == promised
    assert (scene.settling.unseen, scene.settling.unsettled) == (int(promised), int(promised))


async def test_the_time_that_a_read_takes_does_not_make_the_bind_late() -> None:
    scene = Scene()

    def slow_read() -> None:
        scene.clock.now += 10

    scene.pods.meanwhile = slow_read
    await scene.settle(after=SETTLE_SECONDS - 1)
    assert scene.promised


async def test_a_pod_that_is_bound_again_during_the_read_keeps_its_new_promise() -> None:
    scene = Scene(pods=Pods(found=GONE))
    scene.pods.meanwhile = lambda: scene.settling.record_bind(BOUND, known=True)
    await scene.settle(after=SETTLE_SECONDS)
    assert scene.promised
    assert (scene.settling.unseen, scene.settling.unsettled) == (1, 0)


async def test_a_bind_that_settles_during_the_read_does_not_free_a_bound_pods_devices() -> None:
    scene = Scene(pods=Pods(found=UNBOUND))

    def bound_and_seen() -> None:
        scene.settling.release("uid-p")
        scene.promise()

    scene.pods.meanwhile = bound_and_seen
    await scene.settle(after=SETTLE_SECONDS)
    assert scene.promised


async def test_a_bind_that_starts_again_during_the_read_keeps_the_promise() -> None:
    scene, running = Scene(pods=Pods(found=GONE)), set[str]()
    scene.pods.meanwhile = lambda: running.add("uid-p")
    scene.clock.now += SETTLE_SECONDS
    await scene.settling.settle(running=running)
    assert scene.promised
    assert scene.settling.unseen == 1


async def test_a_bind_that_is_running_is_not_read() -> None:
    scene = Scene(pods=Pods(found=GONE))
    await scene.settle(after=SETTLE_SECONDS, running=("uid-p",))
    assert scene.pods.reads == 0
    assert scene.promised


async def test_a_running_bind_does_not_keep_others_from_being_settled() -> None:
    scene = Scene(pods=Pods(found=GONE))
    scene.ledger.commit(Claim(key="uid-q", node="a", cpu_milli=1000))
    scene.settling.record_bind(msgspec.convert(make_pod("q"), Pod), known=False)
    await scene.settle(after=READ_SECONDS, running=("uid-p",))
    assert scene.promised
    assert scene.ledger.claim("uid-q") is None


@pytest.mark.parametrize(
    ("shown", "unseen"),
    [
        pytest.param(None, 1, id="no pod yet"),
        pytest.param(UNBOUND, 1, id="the pod without a node"),
        pytest.param(ANOTHER, 1, id="another pod of that name"),
        pytest.param(BOUND, 0, id="the pod on its node"),
    ],
)
async def test_a_bind_is_over_when_the_cache_shows(shown: Pod | None, unseen: int) -> None:
    scene = Scene(pods=Pods(shown=shown, found=BOUND))
    await scene.settle(after=READ_SECONDS)
    assert (scene.settling.unseen, scene.pods.reads) == (unseen, unseen)
    assert scene.promised


async def test_a_seen_bind_does_not_keep_others_from_being_settled() -> None:
    scene = Scene(pods=Pods(shown=BOUND, found=GONE))
    scene.ledger.commit(Claim(key="uid-q", node="a", cpu_milli=1000))
    scene.settling.record_bind(msgspec.convert(make_pod("q"), Pod), known=False)
    await scene.settle(after=READ_SECONDS)
    assert scene.ledger.claim("uid-q") is None


async def test_a_bind_is_over_when_its_promise_went_with_the_pod() -> None:
    scene = Scene()
    scene.ledger.release("uid-p")
    await scene.settle(after=0)
    assert scene.settling.unseen == 0


def test_giving_up_frees_the_promise_unless_an_earlier_bind_may_have_happened() -> None:
    scene = Scene()
    scene.settling.give_up("uid-p")
    assert scene.promised
    scene.settling.release("uid-p")
    assert not scene.promised
    assert scene.settling.unseen == 0
    scene.promise()
    scene.settling.give_up("uid-p")
    assert not scene.promised


def test_a_confirmed_bind_is_unseen_but_not_unsettled() -> None:
    scene = Scene()
    assert (scene.settling.unseen, scene.settling.unsettled) == (1, 1)
    scene.settling.record_bind(UNBOUND, known=True)
    assert (scene.settling.unseen, scene.settling.unsettled) == (1, 0)
