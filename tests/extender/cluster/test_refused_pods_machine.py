"""Refused pods beside a list of them that is judged anew at each question.

Nodes fill and empty while pods of several requests wait for several nodes, are woken, ask again and go.
"""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail_extender.decide.unschedulable import LONGEST_SECONDS, PAUSE_SECONDS, Waiting
from tests.clock import Clock
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger

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


class RefusedMachine(RuleBasedStateMachine):
    """Kube-scheduler, and what the ledger says at each moment."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger: Ledger = make_ledger(a=2, b=2, c=2)
        self.clock = Clock()
        self.waiting = Waiting(ledger=self.ledger, clock=self.clock)
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

    @rule(node=st.sampled_from(NODES), at=st.integers(0, 1))
    def take(self, node: str, at: int) -> None:
        self.fill(node, at)

    @rule(node=st.sampled_from(NODES), at=st.integers(0, 1))
    def leave(self, node: str, at: int) -> None:
        self.ledger.release(f"{node}-{at}")

    @rule(node=st.sampled_from(NODES))
    def come_or_go(self, node: str) -> None:
        if node in self.ledger.nodes():
            self.ledger.drop_node(node)
        else:
            add_node(self.ledger, node, gpus=2)

    @rule(
        uid=st.sampled_from("pqrs"),
        ask=st.sampled_from(ASKS),
        nodes=st.sets(st.sampled_from(NODES), min_size=1),
        key=st.sampled_from(["", "", "a-0"]),
    )
    def refuse(self, uid: str, ask: str, nodes: set[str], key: str) -> None:
        """A pod is refused where it does not fit: kube-scheduler asks about nodes that exist."""
        pod = Pod(ask=ask, nodes=frozenset(nodes & set(self.ledger.nodes())), key=key)
        if not self.fits(pod):
            self.waiting.refused(uid, ask=make_ask(ask), nodes=sorted(pod.nodes), key=key)
            self.pods[uid] = pod

    @rule(uid=st.sampled_from("pqrs"))
    def forget(self, uid: str) -> None:
        self.waiting.forget(uid)
        self.pods.pop(uid, None)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 5.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(works=st.booleans())
    def wake(self, works: bool) -> None:
        due = self.due()
        assert self.waiting.wake_due() == (bool(due) and self.clock.now >= self.next_at)
        if not due or self.clock.now < self.next_at:
            return
        self.next_at = self.clock.now + PAUSE_SECONDS
        if not works:
            self.waiting.failed()
            return
        self.waiting.woken()
        for uid in due:
            pod = self.pods[uid]
            pod.wakes += 1
            pod.wake_at = self.clock.now + min(LONGEST_SECONDS, 2.0**pod.wakes)

    @rule()
    def look(self) -> None:
        due = self.due()
        assert self.waiting.wake_due() == (bool(due) and self.clock.now >= self.next_at), due

    @invariant()
    def who_waits_is_known(self) -> None:
        assert len(self.waiting) == len(self.pods)


TestRefused = RefusedMachine.TestCase
TestRefused.settings = settings(max_examples=80, stateful_step_count=30)
