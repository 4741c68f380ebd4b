"""Refused pods beside a list of them that is judged anew at each question.

Nodes fill and empty while pods of several requests wait for several nodes, are woken, ask again and go.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.errors import KubeError, TooLarge, Unreachable
from dovetail_extender.cluster.wake_up import Waking
from dovetail_extender.decide.unschedulable import LONGEST_SECONDS, PAUSE_SECONDS, Waiting
from dovetail_extender.metrics import Metrics, Reading
from tests.clock import Clock
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger
from tests.seeds import seeds

NODES = ("a", "b", "c")
ASKS = ("1", "2", "0.5")


@dataclass
class Pod:
    """A refused pod, and how often it was woken since."""

    ask: str
    nodes: frozenset[str]
    key: str = ""
    wakes: int = 0
    wake_at: float = field(default=float("-inf"))


class FailingServer:
    """An API server that takes a write unless `fails` says how it does not."""

    def __init__(self) -> None:
        self.taken = 0
        self.fails: KubeError | None = None

    async def patch(self, *_: Any, **__: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.taken += 1


class Scene:
    """Kube-scheduler, and what the ledger says at each moment."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger: Ledger = make_ledger(a=2, b=2, c=2)
        self.clock = Clock()
        self.waiting = Waiting(ledger=self.ledger, clock=self.clock)
        self.server, self.metrics = FailingServer(), Metrics(ledger=self.ledger, read=Reading)
        server: Any = self.server
        self.waking = Waking(server, waiting=self.waiting, namespace="system", metrics=self.metrics)
        self.pods: dict[str, Pod] = {}
        self.next_at = float("-inf")
        for node in NODES:
            for at in range(2):
                self.fill(node, at)

    def fits(self, pod: Pod) -> bool:
        ask = make_ask(pod.ask)
        there = pod.nodes & set(self.ledger.nodes())
        return any(isinstance(check(self.ledger, ask=ask, node=node, key=pod.key), Fit) for node in there)

    def due(self) -> set[str]:
        return {uid for uid, pod in self.pods.items() if pod.wake_at <= self.clock.now and self.fits(pod)}

    def fill(self, node: str, at: int) -> None:
        if self.ledger.claim(f"{node}-{at}") is None and node in self.ledger.nodes():
            hold_devices(self.ledger, node, at, key=f"{node}-{at}")

    def take(self) -> None:
        self.fill(self.random.choice(NODES), self.random.randint(0, 1))

    def leave(self) -> None:
        self.ledger.release(f"{self.random.choice(NODES)}-{self.random.randint(0, 1)}")

    def come_or_go(self) -> None:
        node = self.random.choice(NODES)
        if node in self.ledger.nodes():
            self.ledger.drop_node(node)
        else:
            add_node(self.ledger, node, gpus=2)

    def refuse(self) -> None:
        """A pod is refused where it does not fit: kube-scheduler asks about nodes that exist."""
        uid, ask, key = self.random.choice("pqrs"), self.random.choice(ASKS), self.random.choice(["", "", "a-0"])
        nodes = {node for node in self.ledger.nodes() if self.random.random() < 0.6}
        pod = Pod(ask=ask, nodes=frozenset(nodes), key=key)
        if not self.fits(pod):
            self.waiting.refused(uid, ask=make_ask(ask), nodes=sorted(pod.nodes), key=key)
            self.pods[uid] = pod

    def forget(self) -> None:
        uid = self.random.choice("pqrs")
        self.waiting.forget(uid)
        self.pods.pop(uid, None)

    def pass_time(self) -> None:
        self.clock.now += self.random.choice([0.5, 1.0, 2.0, 5.0, 61.0])

    def look(self) -> bool:
        due = self.due()
        assert self.waiting.wake_due() == (bool(due) and self.clock.now >= self.next_at), due
        return bool(due) and self.clock.now >= self.next_at

    def wake(self) -> None:
        due = self.due()
        if not self.look():
            return
        self.next_at = self.clock.now + PAUSE_SECONDS
        if self.random.random() < 0.2:
            self.server.fails = self.random.choice(
                [Unreachable("server", problem="cut off"), TooLarge("path", most_bytes=1)]
            )
        self.send()
        if self.server.fails is not None:
            self.server.fails = None
            return
        for uid, pod in self.pods.items():
            # A wake-up wakes all pods: one that has just lost its room may count it too.
            if uid in due or self.waiting._pods[uid].wakes > pod.wakes:
                pod.wakes += 1
                pod.wake_at = self.clock.now + min(LONGEST_SECONDS, 2.0**pod.wakes)

    def send(self) -> None:
        """What the extender does in each round: it counts what the API server has taken, and nothing else."""
        asyncio.run(self.waking.send_due())
        assert self.metrics.registry.get_sample_value("dovetail_extender_wakeups_total") == self.server.taken


OFTEN = ("take", "leave", "pass_time", "pass_time", "look", "wake", "wake", "refuse")
SELDOM = ("come_or_go", "forget")


@seeds(30)
def test_a_wake_up_is_due_whenever_a_pod_that_may_be_woken_fits(seed: int) -> None:
    scene = Scene(seed)
    for _ in range(200):
        step = scene.random.choice(OFTEN if scene.random.random() < 0.95 else SELDOM)
        getattr(scene, step)()
        assert len(scene.waiting) == len(scene.pods)
