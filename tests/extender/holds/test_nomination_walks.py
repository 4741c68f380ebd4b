"""Nominations over time: whatever kube-scheduler nominates, takes back and binds, a promise stays what it is.

A pod's promise stands from its bind on, which the watch shows later or never. A hold is only of a pod that is nominated
now, on that node. When every pod is gone, nothing is kept.
"""

from collections import Counter
from random import Random
from typing import Any

import msgspec

from dovetail.api.builtin import Pod
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.model.claims import Claim
from dovetail.gpu.request import WHOLE_MILLI
from dovetail_extender.holds.nominations import Intended
from tests.extender.builders import make_pod
from tests.extender.desk import Desk
from tests.seeds import seeds

PODS = ("p", "q", "r", "s")
NODES = ("a", "b")
LEAVES = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class Scene:
    """Pods of several priorities for two small nodes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.desk = Desk(a=2, b=2)
        # The pods as the watch has shown them, and the promises that it shows or is yet to show.
        self.pods: dict[str, dict[str, Any]] = {}
        self.nominated: dict[str, str] = {}
        self.promised: dict[str, Claim] = {}
        self.leaving: set[str] = set()
        # The pods that the watch has shown as bound.
        self.shown: set[str] = set()

    def show(self, name: str, *, node: str = "", **meta: Any) -> None:
        pod = self.pods[name]
        status = {"phase": "Running" if node else "Pending"}
        if name in self.nominated:
            status |= {"nominatedNodeName": self.nominated[name]}
        self.desk.put({**pod, "status": status}, node=node, **meta)

    def create(self, name: str, _node: str) -> None:
        gpu, priority = self.random.choice("12"), self.random.choice([0, 5, 10])
        if name not in self.pods:
            self.pods[name] = make_pod(name, gpu, milli=1000 * int(gpu), priority=priority)
            self.show(name)

    def nominate(self, name: str, node: str) -> None:
        if name in self.pods and name not in self.shown:
            self.nominated[name] = node
            self.show(name)

    def take_back(self, name: str, _node: str = "") -> None:
        if name in self.pods and name not in self.shown:
            self.nominated.pop(name, None)
            self.show(name)

    def intend(self, name: str, node: str) -> None:
        """A preemption has chosen the devices that the pod gets there once all that leave have left."""
        if name in self.pods and name not in self.promised:
            pod = msgspec.convert(self.pods[name], Pod)
            gone = [f"uid-{each}" for each in self.leaving]
            with self.desk.ledger.without(gone):
                ask = self.desk.ask(self.pods[name])
                fit = check(self.desk.ledger, ask=ask, node=node, key=pod.metadata.uid)
            if isinstance(fit, Fit):
                way = Intended(claim=fit.claim, victims=frozenset(gone), at=self.desk.clock())
                self.desk.nominations.intend(pod.metadata.uid, by_node={node: way})
                self.nominate(name, node)

    def bind(self, name: str, node: str) -> None:
        """The bind is sent; the watch shows it later."""
        if name in self.pods and name not in self.promised:
            before = {each.key: each for each in self.desk.ledger.claims() if not self.desk.ledger.is_hold(each.key)}
            found = self.desk.bind({**self.pods[name], "status": {"phase": "Pending"}}, node)
            if isinstance(found, Claim):
                self.promised[name] = found
            for key, claim in before.items():
                assert self.desk.ledger.claim(key) == claim, "a bind takes a promise"

    def see_bound(self, name: str, _node: str = "") -> None:
        if name in self.promised and name in self.pods:
            self.shown.add(name)
            self.nominated.pop(name, None)
            self.show(name, node=self.promised[name].node)
            self.desk.ledger.commit(self.promised[name])

    def delete_softly(self, name: str, _node: str = "") -> None:
        """A bound pod is being deleted: it has its devices until it is gone."""
        if name in self.shown:
            self.leaving.add(name)
            self.show(name, node=self.promised[name].node, **LEAVES)
            self.desk.ledger.commit(self.promised[name])

    def delete(self, name: str, _node: str = "") -> None:
        if self.pods.pop(name, None) is not None:
            self.desk.delete(self.desk.pods[f"uid-{name}"])
            self.shown.discard(name)
            self.leaving.discard(name)
            self.nominated.pop(name, None)
            self.promised.pop(name, None)

    def review(self, _name: str, _node: str) -> None:
        self.desk.nominations.review()
        for name, node in self.nominated.items():
            if name not in self.promised and self.desk.ledger.claim(f"uid-{name}") is None:
                with self.desk.ledger.without([f"uid-{each}" for each in self.leaving]):
                    ask = self.desk.ask(self.pods[name])
                    fit = check(self.desk.ledger, ask=ask, node=node, key=f"uid-{name}")
                assert not isinstance(fit, Fit), f"{name} has room on {node} and no hold"

    # --- what always holds -------------------------------------------------------------------------------------

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
            if claim is not None and name not in self.leaving and not self.gives_way(name, node=claim.node):
                for device in claim.devices:
                    taken[device.uuid] += device.share_milli
        assert all(milli <= WHOLE_MILLI for milli in taken.values()), f"promised twice: {taken}"

    def gives_way(self, name: str, *, node: str) -> bool:
        """Whether the pod's hold may be another's room too: that of a pod of higher priority on its node."""
        ledger, priority = self.desk.ledger, self.pods[name]["spec"]["priority"]
        return ledger.is_hold(f"uid-{name}") and any(
            other["spec"]["priority"] > priority and ledger.is_hold(f"uid-{key}") and self.nominated.get(key) == node
            for key, other in self.pods.items()
        )

    def only_pods_that_are_there_are_known(self) -> None:
        nominations = self.desk.nominations
        assert len(nominations) == sum(name not in self.shown for name in self.nominated)
        there = {name: node for node in NODES for name in self.leaving if self.promised[name].node == node}
        for node in NODES:
            assert nominations.leaving(node) == {f"uid-{name}" for name, at in there.items() if at == node}

    def everything_goes(self) -> None:
        for name in list(self.pods):
            self.delete(name)
        assert self.desk.ledger.claims() == []
        kept = {name: value for name, value in vars(self.desk.nominations).items() if isinstance(value, dict) and value}
        assert kept == {}


STEPS = (
    "create", "create", "nominate", "nominate", "take_back", "bind", "bind", "see_bound", "delete_softly", "delete",
    "review", "intend",
)  # fmt: skip


@seeds(40)
def test_promises_stand_whatever_is_nominated_taken_back_and_bound(seed: int) -> None:
    scene = Scene(seed)
    for _ in range(150):
        getattr(scene, scene.random.choice(STEPS))(scene.random.choice(PODS), scene.random.choice(NODES))
        scene.promises_stand_and_holds_are_of_nominated_pods()
        scene.only_pods_that_are_there_are_known()
    scene.everything_goes()
