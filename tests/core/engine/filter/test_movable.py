"""TimeShared tenants whose memory is moved to the host by turns: who may overlap with whom."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.filter.fit import Fit, Judgement, check, screen
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.refusals import Refusal
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger

ENOUGH = 1 << 20
USABLE = 26214  # 0.8 of 32768 MiB


def node(*, movable: bool = True, gpus: int = 1, **facts: object) -> Ledger:
    ledger = Ledger()
    add_node(ledger, "a", gpus=gpus)
    report(ledger, movable=movable, gpus=gpus, **facts)
    return ledger


def report(ledger: Ledger, *, movable: bool, gpus: int = 1, note: str = "", **facts: object) -> None:
    devices = [make_device("a", at, movable=movable, **facts) for at in range(gpus)]
    ledger.set_devices("a", devices=devices, note=note)


def tenant(text: str = "20G,1", *, host_room_mib: int = ENOUGH, guard: str | None = None) -> Ask:
    return replace(make_ask(text, mode="TimeShared", guard=guard), host_room_mib=host_room_mib)


def place(ledger: Ledger, ask: Ask, *, key: str = "x") -> Claim | None:
    found = check(ledger, ask=ask, node="a", key=key)
    if isinstance(found, Refusal):
        return None
    ledger.commit(found.claim)
    return found.claim


def refused(ledger: Ledger, ask: Ask) -> str:
    found = check(ledger, ask=ask, node="a", key="new")
    assert isinstance(found, Refusal)
    assert found.kind == "MemoryGuard"
    return found.message


def test_as_many_as_there_are_turns_share_a_card_that_has_room_for_one() -> None:
    ledger = node()
    assert all(place(ledger, tenant(), key=str(at)) for at in range(4))
    found = check(ledger, ask=tenant(), node="a", key="fifth")
    assert isinstance(found, Refusal)
    assert found.kind == "TenantLimit"


@pytest.mark.parametrize("movable", [True, False])
def test_a_claim_among_many_nodes_is_that_of_the_node_alone(movable: bool) -> None:
    ledger = node(movable=movable)
    for ask in (tenant(), make_ask("1"), make_ask("0.5"), make_ask("4G,0.5", guard="Conservative")):
        alone, judged = check(ledger, ask=ask, node="a", key="x"), Judgement(ledger, ask=ask, nodes=["a"], key="x")
        assert isinstance(alone, Fit)
        assert judged.claim(0, key="x", devices=judged.devices(0)) == alone.claim


def test_where_nobody_is_moved_they_do_not_overlap() -> None:
    ledger = node(movable=False)
    assert place(ledger, tenant(), key="first") is not None
    assert refused(ledger, tenant()) == "a: need 20480 MiB on a GPU, the most left on one is 5734 MiB"


def test_each_must_fit_for_itself() -> None:
    ledger = node()
    assert place(ledger, tenant(), key="first") is not None
    assert place(ledger, tenant("27000M,1")) is None
    report(ledger, movable=True, foreign_mib=5000)
    assert "the most left on one is 21214 MiB" in refused(ledger, tenant("22000M,1"))


def test_whose_container_has_no_room_for_it_counts_in_full_and_is_told_what_it_needs() -> None:
    ledger = node()
    assert place(ledger, tenant("10G,1", host_room_mib=10239), key="stays") is not None
    assert place(ledger, tenant("15G,1"), key="moves") is not None
    assert place(ledger, tenant("15G,1"), key="moves too") is not None
    message = refused(ledger, tenant("10G,1", host_room_mib=10239))
    assert message == (
        "a: need 10240 MiB on a GPU, the most left on one is 614 MiB (tenants are moved to the host there, for which "
        "its one container must request 10752 MiB of memory)"
    )
    assert refused(ledger, tenant("16G,1")).endswith("the most left on one is 15974 MiB")


def test_memory_on_several_devices_is_moved_together() -> None:
    ledger = node(gpus=2)
    assert place(ledger, tenant("2x20G,1", host_room_mib=40960), key="first") is not None
    assert "request 41472 MiB" in refused(ledger, tenant("2x20G,1", host_room_mib=40959))
    assert place(ledger, tenant("2x20G,1", host_room_mib=40960), key="second") is not None


def test_the_strictest_tenant_decides_here_too() -> None:
    ledger = node()
    assert place(ledger, tenant("30G,1", guard="Aggressive"), key="first") is not None
    assert refused(ledger, tenant("1G,1", guard="Conservative"))
    assert place(ledger, tenant("30G,1", guard="Aggressive"), key="second") is not None


def test_a_guard_that_leaves_the_driver_no_room_moves_nobody() -> None:
    ledger = node(memory_mib=8192)
    first = place(ledger, tenant("7G,1", guard="Aggressive"), key="first")
    assert first is not None
    assert not first.movable
    assert refused(ledger, tenant("7G,1", guard="Aggressive"))


def test_shares_and_whole_devices_are_never_moved() -> None:
    ledger = node()
    claim = place(ledger, replace(make_ask("20G,0.5"), host_room_mib=ENOUGH))
    assert claim is not None
    assert not claim.movable
    assert refused(ledger, replace(make_ask("20G,0.5"), host_room_mib=ENOUGH))


@pytest.mark.parametrize("how", ["reported", "silent"])
def test_when_the_node_moves_nobody_any_more_those_there_stay_and_count_in_full(how: str) -> None:
    ledger = node()
    claims = [place(ledger, tenant(), key=key) for key in "xy"]
    report(ledger, movable=how == "silent", note="no report" if how == "silent" else "")
    assert ledger.claims() == claims
    assert refused(ledger, tenant("1G,1")).startswith("a: need 1024 MiB on a GPU, the most left on one is 0 MiB")
    report(ledger, movable=True)
    assert place(ledger, tenant(), key="z") is not None


def test_who_came_where_nobody_was_moved_counts_in_full_for_ever() -> None:
    ledger = node(movable=False)
    assert place(ledger, tenant(), key="first") is not None
    report(ledger, movable=True)
    assert refused(ledger, tenant())


def test_many_nodes_are_judged_as_one_is() -> None:
    ledger = make_ledger(b=1)
    add_node(ledger, "a", gpus=1)
    report(ledger, movable=True)
    for name in "ab":
        hold_devices(ledger, name, 0, mode="TimeShared", memory_mib=20480, key=name)
        ledger.commit(replace(ledger.claim(name) or pytest.fail("held"), movable=True))
    assert screen(ledger, ask=tenant(), nodes=["a", "b"], key="new").fits == ["a"]


class OverlapMachine(RuleBasedStateMachine):
    """Whatever comes and goes: at every time all that stays on a card fits there beside any one of those that move."""

    placed: Bundle[str] = Bundle("placed")

    @initialize()
    def start(self) -> None:
        self.ledger = node(gpus=2)
        self.live = True
        self.count = 0

    @rule(
        target=placed,
        text=st.sampled_from(["1G,1", "6G,1", "13G,1", "20G,1", "26214M,1", "30G,1", "1", "2x20G,1", "2x5G,1"]),
        host_room_mib=st.sampled_from([0, 6144, 20480, 30720, 40960]),
        guard=st.sampled_from(["Conservative", "Aggressive"]),
    )
    def come(self, text: str, host_room_mib: int, guard: str) -> object:
        self.count += 1
        before = {claim.key: claim for claim in self.ledger.claims()}
        claim = place(self.ledger, tenant(text, host_room_mib=host_room_mib, guard=guard), key=str(self.count))
        if claim is None:
            return multiple()
        assert self.live or not claim.movable
        assert not claim.movable or host_room_mib >= sum(device.memory_mib for device in claim.devices)
        if not self.live:
            for device in claim.devices:
                together = sum(part.memory_mib for other in before.values() for part in parts(other, device.uuid))
                assert together + device.memory_mib <= 32768 * 0.95, "no new overlap where nobody is moved"
        return claim.key

    @rule(key=consumes(placed))
    def go(self, key: str) -> None:
        self.ledger.release(key)

    @rule(live=st.booleans())
    def the_agent_reports(self, live: bool) -> None:
        self.live = live
        report(self.ledger, movable=live, gpus=2)

    @invariant()
    def what_is_there_at_one_time_fits(self) -> None:
        for uuid in ("a-0", "a-1"):
            tenants = [(claim, part) for claim in self.ledger.claims() for part in parts(claim, uuid)]
            stays = sum(part.memory_mib for claim, part in tenants if not claim.movable)
            moves = max((part.memory_mib for claim, part in tenants if claim.movable), default=0)
            strictest = min((claim.guard_fraction or 0 for claim, _ in tenants), default=1.0)
            assert stays + moves <= 32768 * strictest
            assert len(tenants) <= self.ledger.limits.turns_per_device

    @invariant()
    def two_that_cannot_both_be_there_both_move(self) -> None:
        for uuid in ("a-0", "a-1"):
            tenants = [(claim, part.memory_mib) for claim in self.ledger.claims() for part in parts(claim, uuid)]
            for one, mine in tenants:
                for other, its in tenants:
                    if one.key != other.key and mine + its > 32768 * 0.95:
                        assert one.movable
                        assert other.movable


def parts(claim: Claim, uuid: str) -> list[AllocatedDevice]:
    return [part for part in claim.devices if part.uuid == uuid]


TestOverlapMachine = OverlapMachine.TestCase


def test_a_claim_that_fits_is_what_is_checked() -> None:
    found = check(node(), ask=tenant(), node="a", key="x")
    assert isinstance(found, Fit)
    assert found.claim.movable
    assert found.claim.devices[0].memory_mib == 20480
