"""The ledger as a state machine beside a dumb model, and the cases that a machine finds late."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger

NODES = ("a", "b", "c")
REQUESTS = ("1", "2", "0.5", "0.3", "8G,0.25", "2x0.4", "20G,0.5", "1@cuda:1")
GUARDS = (None, "Conservative", "Aggressive")
WORKLOADS = (None, "Training", "Inference")


class LedgerMachine(RuleBasedStateMachine):
    """The dumb model is a dict of claims; every promise is added up from it in plain loops."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = make_ledger(a=2, b=4, c=1)
        self.model: dict[str, Claim] = {}
        self.holds: dict[str, float] = {}
        self.now = 0.0
        self.count = 0

    @rule(target=keys, node=st.sampled_from(NODES), text=st.sampled_from(REQUESTS), hold=st.none() | st.floats(1, 9),
          mode=st.sampled_from([None, "TimeShared", "Fractional"]), guard=st.sampled_from(GUARDS),
          workload=st.sampled_from(WORKLOADS))  # fmt: skip
    def place(self, node: str, text: str, hold: float | None, mode: Any, guard: Any, workload: Any) -> str:
        self.count += 1
        key = f"pod-{self.count}"
        self._try(key, node=node, ask=make_ask(text, mode=mode, guard=guard, workload=workload), hold=hold)
        return key

    @rule(key=keys, node=st.sampled_from(NODES), text=st.sampled_from(REQUESTS))
    def place_again(self, key: str, node: str, text: str) -> None:
        self._try(key, node=node, ask=make_ask(text), hold=None)

    @rule(key=consumes(keys))
    def release(self, key: str) -> None:
        assert self.ledger.release(key) == self.model.pop(key, None)
        self.holds.pop(key, None)

    @rule(seconds=st.floats(0.1, 5))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = {key for key, until in self.holds.items() if until <= self.now}
        assert {claim.key for claim in self.ledger.expire_holds(self.now)} == due
        for key in due:
            del self.holds[key], self.model[key]

    @rule(node=st.sampled_from(NODES), gpus=st.integers(0, 4))
    def node_returns_with_other_devices(self, node: str, gpus: int) -> None:
        self.ledger.drop_node(node)
        add_node(self.ledger, node, gpus=gpus)

    @rule(node=st.sampled_from(NODES), foreign=st.integers(0, 40000), load=st.floats(0, 1))
    def the_agent_reports(self, node: str, foreign: int, load: float) -> None:
        devices = [replace(each, foreign_mib=foreign, utilization=load) for each in self.ledger.devices(node)]
        self.ledger.set_devices(node, devices, now=self.now)

    @rule(node=st.sampled_from(NODES))
    def the_agent_falls_silent(self, node: str) -> None:
        self.ledger.distrust(node, note="nobody knows")

    @rule()
    def loads_settle(self) -> None:
        self.ledger.settle_utilization(self.now)

    def _try(self, key: str, *, node: str, ask: Ask, hold: float | None) -> None:
        found = check(self.ledger, ask, node=node, key=key)
        if not isinstance(found, Fit):
            return
        until = None if hold is None else self.now + hold
        self.ledger.commit(found.claim, hold_until=until)
        self.model[key] = found.claim
        self.holds.pop(key, None)
        if until is not None:
            self.holds[key] = until

    @invariant()
    def the_claims_are_the_models(self) -> None:
        assert {claim.key: claim for claim in self.ledger.claims()} == self.model
        assert self.ledger.totals().holds == len(self.holds)

    @invariant()
    def no_device_is_promised_beyond_what_it_has(self) -> None:
        for node in NODES:
            for device in self.ledger.devices(node):
                tenants = [
                    (claim, part)
                    for claim in self.model.values()
                    for part in claim.devices
                    if claim.node == node and part.uuid == device.uuid
                ]
                modes = {claim.mode for claim, _ in tenants}
                assert len(modes) <= 1, "a device serves one mode at a time"
                if "Exclusive" in modes:
                    assert len(tenants) == 1
                elif modes:
                    strictest = min(claim.guard_fraction or 0 for claim, _ in tenants)
                    assert sum(part.memory_mib for _, part in tenants) <= device.memory_mib * strictest
                    workloads = [claim.workload for claim, _ in tenants]
                    assert workloads.count("Training") <= 1
                    assert workloads.count("Inference") <= 3
                if "Fractional" in modes:
                    assert sum(part.share_milli for _, part in tenants) <= 1000
                if "TimeShared" in modes:
                    assert len(tenants) <= self.ledger.limits.turns_per_device

    @invariant()
    def what_is_shown_is_a_ratio_and_of_a_silent_node_what_is_promised(self) -> None:
        columns = self.ledger.columns(NODES)
        assert ((columns.utilization >= 0) & (columns.utilization <= 1)).all()
        silent = columns.unmeasured
        assert (columns.foreign[silent] == 0).all()
        assert (columns.utilization[silent] * 1000 == (1000 - columns.share_left[silent]).clip(0, 1000)).all()

    @invariant()
    def a_copy_is_equal_and_apart(self) -> None:
        copy = self.ledger.copy()
        assert copy.totals() == self.ledger.totals()
        for key in self.model:
            copy.release(key)
        assert copy.totals().promised_milli == 0
        assert {claim.key for claim in self.ledger.claims()} == set(self.model)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_claim_outlives_its_node_and_counts_again_when_the_devices_return() -> None:
    ledger = make_ledger(a=2)
    hold_devices(ledger, "a", 0, key="pod")
    ledger.drop_node("a")
    assert ledger.nodes() == []
    add_node(ledger, "a", gpus=2)
    assert not isinstance(check(ledger, make_ask("2"), node="a", key="other"), Fit)


def test_a_claim_on_devices_that_never_return_takes_nothing_of_the_new_ones() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="pod")
    ledger.set_devices("a", [make_device("renamed", 0)])
    assert isinstance(check(ledger, make_ask("1"), node="a", key="other"), Fit)


def test_a_claim_that_comes_before_its_node_is_counted() -> None:
    ledger = Ledger()
    hold_devices(ledger, "a", 0, key="pod")
    add_node(ledger, "a", gpus=1)
    assert ledger.totals().promised_milli == 1000


def test_a_firm_claim_does_not_expire() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="pod", hold_until=5.0)
    assert ledger.is_hold("pod")
    hold_devices(ledger, "a", 0, key="pod")
    assert ledger.expire_holds(10.0) == []
    assert not ledger.is_hold("pod")


def test_what_is_promised_already_touches_no_node_and_a_hold_that_becomes_firm_does() -> None:
    ledger = make_ledger(a=1)
    found = check(ledger, make_ask("0.5"), node="a", key="pod")
    assert isinstance(found, Fit)
    ledger.commit(found.claim, hold_until=5.0)
    seen = ledger.changes
    ledger.commit(found.claim, hold_until=9.0)
    assert ledger.changes == seen
    assert not ledger.expire_holds(7.0)
    ledger.commit(found.claim)
    assert ledger.changes > seen
    assert not ledger.is_hold("pod")


def test_what_is_promised_together_is_promised_as_one_by_one_and_each_node_is_summed_up_once() -> None:
    together, one_by_one = make_ledger(a=4, b=2), make_ledger(a=4, b=2)
    claims = []
    for key, node in (("p", "a"), ("q", "a"), ("r", "b"), ("p", "b")):
        found = check(one_by_one, make_ask("1"), node=node, key=key)
        assert isinstance(found, Fit)
        one_by_one.commit(found.claim)
        claims.append(found.claim)
    before = together.changes
    together.commit_all(claims[:3])
    assert together.changes == before + 2
    together.commit_all(claims)
    assert {claim.key: claim for claim in together.claims()} == {claim.key: claim for claim in one_by_one.claims()}
    assert together.totals() == one_by_one.totals()
    assert str(together.columns(["a", "b"])) == str(one_by_one.columns(["a", "b"]))


def test_a_node_tells_when_it_changed_last() -> None:
    ledger = make_ledger(a=1, b=1)
    before = ledger.changed_at("a"), ledger.changed_at("b")
    found = check(ledger, make_ask("0.5"), node="a", key="pod")
    assert isinstance(found, Fit)
    ledger.commit(found.claim)
    assert ledger.changed_at("a") > before[0]
    assert ledger.changed_at("b") == before[1]
    assert ledger.changed_at("never seen") == 0


def test_the_columns_grow_with_nodes_and_with_devices() -> None:
    ledger = Ledger()
    for number in range(200):
        add_node(ledger, f"n{number}", gpus=1)
    add_node(ledger, "large", gpus=20)
    assert ledger.totals().devices == 220
    assert isinstance(check(ledger, make_ask("20"), node="large", key="pod"), Fit)
