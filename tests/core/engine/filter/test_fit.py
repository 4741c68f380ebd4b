"""Scenarios of fit and refusal as data: one cluster each, one ask, and what is expected."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from dovetail.api.gpujob import Mode, Workload
from dovetail.engine.filter.fit import Fit, check, screen
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.inventory import NodeFacts
from dovetail.engine.model.refusals import Refusal, RefusalKind
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger


def with_claims(*claims: dict[str, object], gpus: int = 2) -> Ledger:
    ledger = make_ledger(a=gpus)
    for number, claim in enumerate(claims):
        hold_devices(ledger, "a", claim.pop("device", 0), key=str(number), **claim)  # type: ignore[arg-type]
    return ledger


def with_device(**facts: object) -> Ledger:
    ledger = make_ledger(a=1)
    ledger.set_devices("a", devices=[make_device("a", 0, **facts)])  # type: ignore[arg-type]
    return ledger


def with_node(**facts: object) -> Ledger:
    ledger = Ledger()
    add_node(ledger, "a", gpus=2, **facts)
    return ledger


def without_devices() -> Ledger:
    ledger = Ledger()
    ledger.set_node(NodeFacts(name="a"))
    return ledger


def half(**more: object) -> dict[str, object]:
    return {"share_milli": 500, "memory_mib": 13107, "mode": "Fractional", **more}


@dataclass(frozen=True, kw_only=True)
class Refused:
    name: str
    ledger: Callable[[], Ledger]
    ask: str
    kind: RefusalKind
    says: str
    mode: Mode | None = None
    cpu_milli: int = 0


REFUSED = [
    Refused(name="an unknown node", ledger=Ledger, ask="1", kind="Unhealthy", says="a: node is not known yet"),
    Refused(
        name="a node that is not ready",
        ledger=lambda: with_node(obstacle="node is not ready"), ask="1", kind="Unhealthy", says="a: node is not ready",
    ),
    Refused(
        name="a cordoned node", ledger=lambda: with_node(cordoned=True), ask="1", kind="Cordoned",
        says="a: node is cordoned",
    ),
    Refused(name="no device", ledger=without_devices, ask="1", kind="NoGPU", says="a: no GPU reported (0 GPUs)"),
    Refused(
        name="a node of a vendor's plugin",
        ledger=lambda: with_node(managed=False), ask="1", kind="NotManaged",
        says="a: not a node that Dovetail manages (2 GPUs)",
    ),
    Refused(
        name="another vendor", ledger=lambda: make_ledger(a=2), ask="1(amd)", kind="WrongVendor",
        says="a: no GPU of vendor amd (2 GPUs)",
    ),
    Refused(
        name="another model", ledger=lambda: make_ledger(a=2), ask="1(T4|A100)", kind="WrongModel",
        says="a: no GPU of model T4 or A100 (2 GPUs)",
    ),
    Refused(
        name="the model with less memory", ledger=lambda: make_ledger(a=2), ask="1(V100M16)", kind="WrongModel",
        says="a: no GPU of model V100M16 (2 GPUs)",
    ),
    Refused(
        name="more devices than there are", ledger=lambda: make_ledger(a=2), ask="4", kind="TooFewDevices",
        says="a: Need 4 GPUs, only 2 available: fewer than 4 GPUs",
    ),
    Refused(
        name="more memory than the guard lets promise", ledger=lambda: make_ledger(a=2), ask="27G,0.5",
        kind="TooFewDevices", says="a: Need 1 GPU, only 0 available: fewer than 1 GPU with 27648 MiB",
    ),
    Refused(
        name="an index that is not there", ledger=lambda: make_ledger(a=2), ask="1@cuda:2", kind="DeviceIndex",
        says="a: no such device as cuda:2 (2 GPUs)",
    ),
    Refused(
        name="a device of another node", ledger=lambda: make_ledger(a=2), ask="1@b/cuda:0", kind="DeviceIndex",
        says="a: no such device as b/cuda:0 (2 GPUs)",
    ),
    Refused(
        name="an unhealthy device", ledger=lambda: with_device(healthy=False), ask="1", kind="Unhealthy",
        says="a: Need 1 GPU, only 0 available: GPU 0 on node a is unhealthy: Xid79",
    ),
    Refused(
        name="a cordoned device", ledger=lambda: with_device(cordoned=True), ask="1", kind="Cordoned",
        says="a: Need 1 GPU, only 0 available: GPU 0 on node a is cordoned",
    ),
    Refused(
        name="whole devices, one of them shared", ledger=lambda: with_claims(half()), ask="2", kind="DevicesBusy",
        says="a: Need 2 GPUs, only 1 available: need 2 GPUs free, too many are busy",
    ),
    Refused(
        name="a share, all devices taken whole",
        ledger=lambda: with_claims({}, {"device": 1}), ask="0.5", kind="DevicesBusy",
        says="a: Need 1 GPU, only 0 available: need 1 GPU free, too many are busy",
    ),
    Refused(
        name="the named device is busy", ledger=lambda: with_claims({"device": 1}), ask="1@cuda:1", kind="DevicesBusy",
        says="a: Need 1 GPU, only 0 available: need 1 GPU free, too many are busy",
    ),
    Refused(
        name="a share of a device whose tenants take turns",
        ledger=lambda: with_claims(half(mode="TimeShared"), gpus=1), ask="0.5", kind="ModeConflict",
        says="a: GPUs are in another mode than Fractional (1 GPU)",
    ),
    Refused(
        name="no share left", ledger=lambda: with_claims(half(share_milli=700), gpus=1), ask="0.5", kind="ShareShort",
        says="a: need a share of 0.5, the most left on one GPU is 0.3",
    ),
    Refused(
        name="share left but no memory", ledger=lambda: with_claims(half(memory_mib=20000), gpus=1), ask="8G,0.5",
        kind="MemoryGuard", says="a: need 8192 MiB on a GPU, the most left on one is 6214 MiB",
    ),
    Refused(
        name="a stranger's memory lowers what is free", ledger=lambda: with_device(foreign_mib=20000), ask="8G,0.5",
        kind="MemoryGuard", says="a: need 8192 MiB on a GPU, the most left on one is 6214 MiB",
    ),
    Refused(
        name="a whole card on which a stranger sits", ledger=lambda: with_device(foreign_mib=8000), ask="1",
        kind="MemoryGuard", says="a: need 32768 MiB on a GPU, the most left on one is 24768 MiB",
    ),
    Refused(
        name="all turns taken", mode="TimeShared", ask="0.1", kind="TenantLimit",
        ledger=lambda: with_claims(*[half(mode="TimeShared", memory_mib=100) for _ in range(4)], gpus=1),
        says="a: all turns on the GPUs are taken (1 GPU)",
    ),
    Refused(
        name="a hold keeps the last device", ledger=lambda: with_claims({"hold_until": 9.0}, gpus=1), ask="1",
        kind="Held", says="a: Need 1 GPU, only 0 available: GPUs are held for other pods",
    ),
    Refused(
        name="too little CPU beside the devices", ledger=lambda: with_node(cpu_milli=1000), ask="1", cpu_milli=2000,
        kind="CPUOrMemoryShort", says="a: need 2000m CPU and 0 MiB, only 1000m and 262144 MiB available",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_node_that_does_not_fit_says_why(case: Refused) -> None:
    ask = make_ask(case.ask, mode=case.mode, cpu_milli=case.cpu_milli)
    refusal = check(case.ledger(), ask=ask, node="a", key="pod")
    assert not isinstance(refusal, Fit)
    assert (refusal.kind, refusal.message) == (case.kind, case.says)


@dataclass(frozen=True, kw_only=True)
class Placed:
    name: str
    ledger: Callable[[], Ledger]
    ask: str
    devices: list[tuple[int, int, int]]
    mode: Mode | None = None


PLACED = [
    Placed(
        name="a whole device gets all its memory", ledger=lambda: make_ledger(a=1), ask="1",
        devices=[(0, 1000, 32768)]),
    Placed(
        name="driver-reserved memory is not promised", ledger=lambda: with_device(reserved_mib=768), ask="1",
        devices=[(0, 1000, 32000)],
    ),
    Placed(
        name="a share without memory gets that share of what the guard lets promise", ledger=lambda: make_ledger(a=1),
        ask="0.5", devices=[(0, 500, 13107)],
    ),
    Placed(
        name="a share with memory gets just that", ledger=lambda: make_ledger(a=1), ask="8G,0.5",
        devices=[(0, 500, 8192)]),
    Placed(
        name="a second share goes beside the first", ledger=lambda: with_claims(half()), ask="0.5",
        devices=[(0, 500, 13107)],
    ),
    Placed(
        name="several shares go to different devices", ledger=lambda: with_claims(half()), ask="2x8G,0.5",
        devices=[(0, 500, 8192), (1, 500, 8192)],
    ),
    Placed(
        name="whole devices are those that nobody shares", ledger=lambda: with_claims(half(), gpus=3), ask="2",
        devices=[(1, 1000, 32768), (2, 1000, 32768)],
    ),
    Placed(
        name="the named device of the named node", ledger=lambda: make_ledger(a=4), ask="1@a/cuda:3",
        devices=[(3, 1000, 32768)],
    ),
    Placed(name="the named device", ledger=lambda: make_ledger(a=4), ask="1@cuda:2", devices=[(2, 1000, 32768)]),
    Placed(
        name="turns overlap in compute", mode="TimeShared", ask="4G,1",
        ledger=lambda: with_claims(half(mode="TimeShared", share_milli=1000, memory_mib=4096), gpus=1),
        devices=[(0, 1000, 4096)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", PLACED, ids=lambda case: case.name)
def test_a_node_that_fits_gives_the_devices(case: Placed) -> None:
    fit = check(case.ledger(), ask=make_ask(case.ask, mode=case.mode), node="a", key="pod")
    assert isinstance(fit, Fit), fit
    assert [(device.index, device.share_milli, device.memory_mib) for device in fit.claim.devices] == case.devices


def test_spread_takes_the_emptiest_device_and_pack_the_fullest_that_fits() -> None:
    ledger = with_claims(half(share_milli=200, memory_mib=1000), gpus=2)
    chosen = {}
    for policy in ("Spread", "Pack"):
        fit = check(ledger, ask=make_ask("0.5", policy=policy), node="a", key="pod")  # type: ignore[arg-type]
        assert isinstance(fit, Fit)
        chosen[policy] = fit.claim.devices[0].index
    assert chosen == {"Spread": 1, "Pack": 0}


def test_a_claim_of_the_same_key_does_not_stand_in_its_own_way() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, key="pod")
    assert isinstance(check(ledger, ask=make_ask("1"), node="a", key="pod"), Fit)
    assert not isinstance(check(ledger, ask=make_ask("1"), node="a", key="other"), Fit)


def test_every_node_is_in_exactly_one_list_of_a_screening() -> None:
    ledger = make_ledger(a=8, b=2, c=0)
    screening = screen(ledger, ask=make_ask("4"), nodes=["a", "b", "c", "d"], key="pod")
    assert screening.fits == ["a"]
    assert {name: refusal.kind for name, refusal in screening.refusals.items()} == {
        "b": "TooFewDevices",
        "c": "NoGPU",
        "d": "Unhealthy",
    }


def test_nodes_that_refuse_for_one_cause_share_one_text() -> None:
    ledger = make_ledger(a=1, b=2, c=3)
    refusals = screen(ledger, ask=make_ask("4"), nodes=["a", "b", "c"], key="pod").refusals.values()
    assert {refusal.text for refusal in refusals} == {"fewer than 4 GPUs"}
    assert all(refusal.unresolvable for refusal in refusals)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The most that an ask may find there and still fit. One more of it, and the node refuses.

    `there` builds the ledger from the amount.
    """

    says: str
    there: Callable[[int], Ledger]
    most: int
    ask: str
    kind: RefusalKind
    mode: Mode | None = None
    workload: Workload | None = None
    cpu_milli: int = 0
    memory_mib: int = 0


def strangers(mib: int) -> Ledger:
    return with_device(foreign_mib=mib)


def promised(mib: int) -> Ledger:
    return with_claims({"share_milli": 100, "memory_mib": mib, "mode": "Fractional"}, gpus=1)


def host_taken(*, cpu_milli: int = 0, memory_mib: int = 0) -> Ledger:
    ledger = make_ledger(a=1)
    ledger.commit(Claim(key="host", node="a", cpu_milli=cpu_milli, memory_mib=memory_mib))
    return ledger


def turns(count: int) -> Ledger:
    return with_claims(*({"mode": "TimeShared", "share_milli": 100} for _ in range(count)), gpus=1)


def tenants(count: int, workload: Workload) -> Ledger:
    return with_claims(*({"mode": "Fractional", "share_milli": 10, "workload": workload} for _ in range(count)), gpus=1)


BOUNDS = [
    Bound(says="CPU", there=lambda taken: host_taken(cpu_milli=taken), most=56000, ask="1", cpu_milli=8000,
          kind="CPUOrMemoryShort"),
    Bound(says="memory", there=lambda taken: host_taken(memory_mib=taken), most=262144 - 1024, ask="1",
          memory_mib=1024, kind="CPUOrMemoryShort"),
    Bound(says="the share of a device", there=lambda taken: with_claims(half(share_milli=taken, memory_mib=0), gpus=1),
          most=700, ask="0.3", kind="ShareShort"),
    Bound(says="80 % of a shared device's 32,768 MiB", there=promised, most=26214 - 8192, ask="8G,0.5",
          kind="MemoryGuard"),
    Bound(says="a share's own part of the memory", there=promised, most=26214 - 13107, ask="0.5", kind="MemoryGuard"),
    Bound(says="5 % of a whole device for strangers", there=strangers, most=1638, ask="1", kind="MemoryGuard"),
    Bound(says="turns", there=turns, most=3, ask="0.1", mode="TimeShared", kind="TenantLimit"),
    Bound(says="training tenants", there=lambda count: tenants(count, "Training"), most=0, ask="0.1",
          workload="Training", kind="TenantLimit"),
    Bound(says="inference tenants", there=lambda count: tenants(count, "Inference"), most=2, ask="0.1",
          workload="Inference", kind="TenantLimit"),
]  # fmt: skip


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.says)
def test_what_is_exactly_enough_fits_and_one_less_does_not(bound: Bound) -> None:
    ask = replace(
        make_ask(bound.ask, mode=bound.mode, workload=bound.workload, cpu_milli=bound.cpu_milli),
        memory_mib=bound.memory_mib,
    )
    assert isinstance(check(bound.there(bound.most), ask=ask, node="a", key="p"), Fit)
    refused = check(bound.there(bound.most + 1), ask=ask, node="a", key="p")
    assert isinstance(refused, Refusal)
    assert refused.kind == bound.kind


@pytest.mark.parametrize("many", [1, 3])
def test_one_node_and_many_are_judged_alike(many: int) -> None:
    """Whether every node fits or only some: what is found without looking for causes is what the causes say."""
    ledger = make_ledger(**dict.fromkeys("abcd"[:many], 2))
    hold_devices(ledger, "a", 0)
    found = screen(ledger, ask=make_ask("2"), nodes=list("abcd"[:many]), key="p")
    assert found.fits == list("bcd"[: many - 1])
    assert list(found.refusals) == ["a"]
