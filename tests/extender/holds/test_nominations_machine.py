"""Nominations over time: whatever kube-scheduler nominates, takes back and binds, a promise stays what it is.

A pod's promise stands from its bind on, which the watch shows later or never. A hold is only of a pod that is nominated
now, on that node. When every pod is gone, nothing is kept.
"""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.model.claims import Claim
from dovetail.gpu.request import WHOLE_MILLI
from tests.extender.builders import make_pod
from tests.extender.desk import Desk

PODS = ("p", "q", "r", "s")
NODES = ("a", "b")
UIDS = st.sampled_from(PODS)
WHERE = st.sampled_from(NODES)
LEAVES = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class NominationsMachine(RuleBasedStateMachine):
    """Pods of several priorities for two small nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(a=2, b=2)
        # The pods as the watch has shown them, and the promises that it shows or is yet to show.
        self.pods: dict[str, dict[str, Any]] = {}
        self.nominated: dict[str, str] = {}
        self.promised: dict[str, Claim] = {}
        self.leaving: set[str] = set()

    def show(self, name: str, *, node: str = "", **meta: Any) -> None:
        pod = self.pods[name]
        status = {"phase": "Running" if node else "Pending"}
        if name in self.nominated:
            status |= {"nominatedNodeName": self.nominated[name]}
        self.desk.put({**pod, "status": status}, node=node, **meta)

    @rule(name=UIDS, gpu=st.sampled_from(["1", "2"]), priority=st.sampled_from([0, 5, 10]))
    def create(self, name: str, gpu: str, priority: int) -> None:
        if name not in self.pods:
            self.pods[name] = make_pod(name, gpu, milli=1000 * int(gpu), priority=priority)
            self.show(name)

    @rule(name=UIDS, node=WHERE)
    def nominate(self, name: str, node: str) -> None:
        if name in self.pods and name not in self.shown:
            self.nominated[name] = node
            self.show(name)

    @rule(name=UIDS)
    def take_back(self, name: str) -> None:
        if name in self.pods and name not in self.shown:
            self.nominated.pop(name, None)
            self.show(name)

    @rule(name=UIDS, node=WHERE)
    def bind(self, name: str, node: str) -> None:
        """The bind is sent; the watch shows it later."""
        if name in self.pods and name not in self.promised:
            before = {each.key: each for each in self.desk.ledger.claims() if not self.desk.ledger.is_hold(each.key)}
            found = self.desk.bind({**self.pods[name], "status": {"phase": "Pending"}}, node)
            if isinstance(found, Claim):
                self.promised[name] = found
            for key, claim in before.items():
                assert self.desk.ledger.claim(key) == claim, "a bind takes a promise"

    @rule(name=UIDS)
    def see_bound(self, name: str) -> None:
        if name in self.promised and name in self.pods:
            self.shown.add(name)
            self.nominated.pop(name, None)
            self.show(name, node=self.promised[name].node)
            self.desk.ledger.commit(self.promised[name])

    @rule(name=UIDS)
    def delete_softly(self, name: str) -> None:
        """A bound pod is being deleted: it has its devices until it is gone."""
        if name in self.shown:
            self.leaving.add(name)
            self.show(name, node=self.promised[name].node, **LEAVES)
            self.desk.ledger.commit(self.promised[name])

    @rule(name=UIDS)
    def delete(self, name: str) -> None:
        if self.pods.pop(name, None) is not None:
            self.desk.delete(self.desk.pods[f"uid-{name}"])
            self.shown.discard(name)
            self.leaving.discard(name)
            self.nominated.pop(name, None)
            self.promised.pop(name, None)

    @rule()
    def review(self) -> None:
        self.desk.nominations.review()
        for name, node in self.nominated.items():
            if name not in self.promised and self.desk.ledger.claim(f"uid-{name}") is None:
                with self.desk.ledger.without([f"uid-{each}" for each in self.leaving]):
                    ask = self.desk.ask(self.pods[name])
                    fit = check(self.desk.ledger, ask=ask, node=node, key=f"uid-{name}")
                assert not isinstance(fit, Fit), f"{name} has room on {node} and no hold"

    # --- what always holds -------------------------------------------------------------------------------------

    @property
    def shown(self) -> set[str]:
        """The pods that the watch has shown as bound."""
        found: set[str] = self.__dict__.setdefault("_shown", set())
        return found

    @invariant()
    def promises_stand_and_holds_are_of_nominated_pods(self) -> None:
        ledger, taken = self.desk.ledger, Counter[str]()
        for name in PODS:
            claim = ledger.claim(f"uid-{name}")
            if name in self.promised:
                assert claim == self.promised[name], f"the promise of {name} is {claim}"
                assert not ledger.is_hold(f"uid-{name}")
            elif claim is not None:
                assert ledger.is_hold(f"uid-{name}")
                assert claim.node == self.nominated.get(name), f"{name} holds {claim.node}"
            if claim is not None and name not in self.leaving:
                for device in claim.devices:
                    taken[device.uuid] += device.share_milli
        assert all(milli <= WHOLE_MILLI for milli in taken.values()), f"promised twice: {taken}"

    @invariant()
    def only_pods_that_are_there_are_known(self) -> None:
        nominations = self.desk.nominations
        assert len(nominations) == sum(name not in self.shown for name in self.nominated)
        there = {name: node for node in NODES for name in self.leaving if self.promised[name].node == node}
        for node in NODES:
            assert nominations.leaving(node) == {f"uid-{name}" for name, at in there.items() if at == node}

    def teardown(self) -> None:
        for name in list(self.pods):
            self.delete(name)
        assert self.desk.ledger.claims() == []
        kept = {name: value for name, value in vars(self.desk.nominations).items() if isinstance(value, dict) and value}
        assert kept == {}


TestNominations = NominationsMachine.TestCase
TestNominations.settings = settings(max_examples=100, stateful_step_count=30)
