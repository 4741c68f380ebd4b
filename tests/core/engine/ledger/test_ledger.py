"""The ledger as a state machine beside a dumb model, and the cases that a machine finds late."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dovetail.api.gpujob import Mode
from dovetail.engine.filter.fit import Fit, check, screen
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.node_row import NodeRow
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

    @rule(key=keys)
    def the_pod_is_bound(self, key: str) -> None:
        if key in self.model:
            self.ledger.commit(self.model[key])
            self.holds.pop(key, None)

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
        self.ledger.set_devices(node, devices=devices, now=self.now)

    @rule(node=st.sampled_from(NODES))
    def the_agent_falls_silent(self, node: str) -> None:
        self.ledger.distrust(node, note="nobody knows")

    @rule()
    def loads_settle(self) -> None:
        self.ledger.settle_utilization(self.now)

    def _try(self, key: str, *, node: str, ask: Ask, hold: float | None) -> None:
        found = check(self.ledger, ask=ask, node=node, key=key)
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
    def the_held_devices_are_those_of_the_holds(self) -> None:
        held = self.ledger.columns(NODES).held
        for at, node in enumerate(NODES):
            of_holds = [part.uuid for key in self.holds for part in self.model[key].devices]
            counts = [of_holds.count(device.uuid) for device in self.ledger.devices(node)]
            assert held[at, : len(counts)].tolist() == counts

    @invariant()
    def what_is_shown_is_a_ratio_and_of_a_silent_node_what_is_promised(self) -> None:
        columns = self.ledger.columns(NODES)
        assert ((columns.utilization >= 0) & (columns.utilization <= 1)).all()
        silent = columns.unmeasured
        assert (columns.foreign[silent] == 0).all()
        assert (columns.utilization[silent] * 1000 == (1000 - columns.share_left[silent]).clip(0, 1000)).all()

    @invariant()
    def a_row_that_was_read_before_is_still_true(self) -> None:
        columns = self.ledger.columns(NODES)
        for at, node in enumerate(NODES):
            row = self.ledger.node_row(node)
            assert {name: getattr(row, name) for name in NodeRow.__slots__} == {
                name: getattr(columns, name)[at].tolist() for name in NodeRow.__slots__
            }

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
    assert not isinstance(check(ledger, ask=make_ask("2"), node="a", key="other"), Fit)


def test_a_claim_on_devices_that_never_return_takes_nothing_of_the_new_ones() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="pod")
    ledger.set_devices("a", devices=[make_device("renamed", 0)])
    assert isinstance(check(ledger, ask=make_ask("1"), node="a", key="other"), Fit)


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
    found = check(ledger, ask=make_ask("0.5"), node="a", key="pod")
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
        found = check(one_by_one, ask=make_ask("1"), node=node, key=key)
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
    found = check(ledger, ask=make_ask("0.5"), node="a", key="pod")
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
    assert isinstance(check(ledger, ask=make_ask("20"), node="large", key="pod"), Fit)


# --- parts of the ledger's promises to those who use it --------------------------------------------------------------


def test_what_is_set_aside_for_a_while_is_as_before_afterwards() -> None:
    ledger = make_ledger(a=2)
    hold_devices(ledger, "a", 0, key="firm")
    hold_devices(ledger, "a", 1, key="hold", hold_until=9.0)
    with ledger.without(["firm", "hold", "unknown"]):
        assert (ledger.claims(), ledger.totals().promised_milli) == ([], 0)
    assert {claim.key for claim in ledger.claims()} == {"firm", "hold"}
    assert (ledger.is_hold("firm"), ledger.is_hold("hold"), ledger.totals().promised_milli) == (False, True, 2000)
    assert [claim.key for claim in ledger.expire_holds(9.0)] == ["hold"]


def test_a_copy_without_claims_has_all_room_and_leaves_the_ledger_as_it_is() -> None:
    ledger = make_ledger(a=2, b=1)
    hold_devices(ledger, "a", 0)
    before = ledger.content()
    assert ledger.copy(with_claims=False).content() == make_ledger(a=2, b=1).content()
    assert ledger.content() == before


def test_what_is_set_aside_comes_back_whatever_happens_meanwhile() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="firm")
    with pytest.raises(LookupError), ledger.without(["firm"]):
        raise LookupError
    assert ledger.claim("firm") is not None


@pytest.mark.parametrize(("now", "expired"), [(8.9, False), (9.0, True), (9.1, True)])
def test_a_hold_ends_at_its_time_and_not_before(now: float, expired: bool) -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="hold", hold_until=9.0)
    assert bool(ledger.expire_holds(now)) is expired
    assert ledger.is_hold("hold") is not expired


@pytest.mark.parametrize(
    ("resource", "nodes", "serves"),
    [
        ("", None, True),
        ("", ["managed"], True),
        ("", ["vendor", "bare"], False),
        ("", ["unknown"], False),
        ("", [], False),
        ("nvidia.com/gpu", None, True),
        ("nvidia.com/gpu", ["managed"], False),
        ("nvidia.com/gpu", ["unknown", "vendor"], True),
        ("nvidia.com/gpu", ["bare"], False),
        ("amd.com/gpu", None, False),
    ],
)
def test_which_nodes_serve_what_is_asked(resource: str, nodes: list[str] | None, serves: bool) -> None:
    ledger = make_ledger(managed=1)
    add_node(ledger, "vendor", gpus=2, managed=False, resource="nvidia.com/gpu", offered=2)
    add_node(ledger, "bare", gpus=0, managed=False, resource="nvidia.com/gpu")
    assert ledger.serves(resource, nodes=nodes) is serves


def test_a_node_that_is_gone_serves_nothing() -> None:
    ledger = make_ledger(a=1)
    ledger.drop_node("a")
    assert not ledger.serves("")


def test_a_name_that_was_never_seen_is_no_node_however_full_the_table_is() -> None:
    names = [f"n{number:02d}" for number in range(64)]
    ledger = make_ledger(**dict.fromkeys(names, 1))
    found = screen(ledger, ask=make_ask("1"), nodes=["n00", "nowhere", "n63"], key="p")
    assert found.fits == ["n00", "n63"]
    assert found.refusals["nowhere"].message == "nowhere: node is not known yet"


def test_a_claim_of_the_same_key_on_another_node_moves() -> None:
    ledger = make_ledger(a=1, b=1)
    hold_devices(ledger, "a", 0, key="p")
    hold_devices(ledger, "b", 0, key="p")
    assert ([claim.key for claim in ledger.claims_on("a")], [claim.key for claim in ledger.claims_on("b")]) == (
        [],
        ["p"],
    )
    assert check(ledger, ask=make_ask("1"), node="a", key="q") != check(ledger, ask=make_ask("1"), node="b", key="q")


def test_memory_that_the_driver_keeps_is_never_given() -> None:
    ledger = make_ledger(a=1)
    ledger.set_devices("a", devices=[make_device("a", 0, reserved_mib=768)])
    assert ledger.largest_mib == 32000
    ledger.set_devices("a", devices=[make_device("a", 0, reserved_mib=40000)])
    assert ledger.largest_mib == 0


@pytest.mark.parametrize(("model", "memory_mib", "asked", "fits"), [
    ("V100", 32768, "1(V100-32GB)", True), ("V100", 32768, "1(V100-16GB)", False),
    ("V100", 16160, "1(V100-16GB)", True),
])  # fmt: skip
def test_what_a_card_has_tells_models_of_one_name_apart(model: str, memory_mib: int, asked: str, fits: bool) -> None:
    ledger = make_ledger(a=1)
    ledger.set_devices("a", devices=[make_device("a", 0, model=model, memory_mib=memory_mib)])
    assert isinstance(check(ledger, ask=make_ask(asked), node="a", key="p"), Fit) is fits


def test_each_device_of_a_node_has_facts_of_its_own() -> None:
    ledger = make_ledger(a=2)
    large = make_device("a", 0, model="A100", reserved_mib=1920, foreign_mib=100, movable=True, healthy=False)
    ledger.set_devices("a", devices=[make_device("a", 1, cordoned=True), large])
    columns = ledger.columns(["a"])
    found = {name: getattr(columns, name)[0, :2].tolist() for name in ("index", "total", "foreign", "movable")}
    assert found == {"index": [0, 1], "total": [80000, 32768], "foreign": [100, 0], "movable": [True, False]}
    assert (columns.healthy[0, :2].tolist(), columns.cordoned[0, :2].tolist()) == ([False, True], [False, True])


def test_tenants_that_take_turns_overlap_and_the_largest_share_counts() -> None:
    ledger = make_ledger(a=1)
    for key, milli in (("x", 300), ("y", 500), ("z", 200)):
        hold_devices(ledger, "a", 0, key=key, share_milli=milli, mode="TimeShared")
    assert ledger.totals().promised_milli == 500
    ledger.release("y")
    assert ledger.totals().promised_milli == 300


@pytest.mark.parametrize("order", [*permutations(["Fractional", "Fractional", "TimeShared"])])
@pytest.mark.parametrize("mode", ["Exclusive", "Fractional", "TimeShared"])
def test_a_device_whose_tenants_have_several_modes_takes_no_other_in_whatever_order_they_came(
    order: tuple[Mode, ...], mode: Mode
) -> None:
    """A hold for a worker in turns that is older than what an extender has read of the pods on its device."""
    ledger = make_ledger(a=1)
    for at, each in enumerate(order):
        hold_devices(ledger, "a", 0, key=f"pod-{at}", share_milli=100, mode=each)
    ask = make_ask("0.1" if mode != "Exclusive" else "1", mode=mode)
    assert not isinstance(check(ledger, ask=ask, node="a", key="new"), Fit)
    assert screen(ledger, ask=ask, nodes=["a"], key="new").fits == []
    for at, each in enumerate(order):
        if each != "TimeShared":
            ledger.release(f"pod-{at}")
    assert isinstance(check(ledger, ask=ask, node="a", key="new"), Fit) == (mode == "TimeShared")


def test_a_row_that_was_read_gets_as_wide_as_all_rows() -> None:
    ledger = make_ledger(a=1)
    before = len(ledger.node_row("a").present)
    add_node(ledger, "wide", gpus=before + 1)
    assert len(ledger.node_row("a").present) == before + 1


def test_more_rows_than_are_kept_are_read_right() -> None:
    ledger = make_ledger(**{f"n{at}": 1 for at in range(100)})
    for _ in range(2):
        for at in range(100):
            hold_devices(ledger, f"n{at}", 0, key=f"pod-{at}")
            assert ledger.node_row(f"n{at}").tenants[0] == 1


def test_a_claim_that_moved_meanwhile_is_back_and_takes_nothing_where_it_was() -> None:
    ledger = make_ledger(a=1, b=1)
    hold_devices(ledger, "a", 0, key="x")
    before = ledger.content()
    claim = ledger.claim("x")
    assert claim is not None
    with ledger.without(["x"]):
        ledger.commit(replace(claim, node="b", devices=(msgspec.structs.replace(claim.devices[0], uuid="b-0"),)))
        assert ledger.content() != before
    assert ledger.claim("x") == claim
    assert ledger.content() == before


def test_other_tenant_limits_count_for_all_devices_without_their_own_also_those_that_come_later() -> None:
    ledger = make_ledger(a=1)
    ledger.set_tenant_limits(training_per_device=7, inference_per_device=9)
    add_node(ledger, "b", gpus=2)
    own = replace(make_device("c", 0), training_limit=2)
    add_node(ledger, "c", gpus=1)
    ledger.set_devices("c", devices=[own])
    ledger.set_tenant_limits(training_per_device=6, inference_per_device=5)
    add_node(ledger, "d", gpus=1)
    limits = {
        name: (int(columns.training_limit[0, 0]), int(columns.inference_limit[0, 0]))
        for name in "abcd"
        if (columns := ledger.columns([name])) is not None
    }
    assert limits == {"a": (6, 5), "b": (6, 5), "c": (2, 5), "d": (6, 5)}


def test_of_a_node_whose_report_does_not_count_no_memory_is_a_stranger_s_and_none_can_move() -> None:
    ledger = make_ledger(a=1)
    device = replace(make_device("a", 0), movable=True, foreign_mib=77)

    def read() -> tuple[int, bool]:
        columns = ledger.columns(["a"])
        return int(columns.foreign[0, 0]), bool(columns.movable[0, 0])

    ledger.set_devices("a", devices=[device])
    assert read() == (77, True)
    ledger.distrust("a", note="it is silent")
    assert read() == (0, False)
    ledger.set_devices("a", devices=[device])
    assert read() == (77, True)
    ledger.set_devices("a", devices=[device], note="it is silent")
    assert read() == (0, False)
