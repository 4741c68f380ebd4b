from collections.abc import Callable
from dataclasses import replace

import pytest

from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger

NONE = "Need 1 GPU, only 0 available"
NO_HOST = "no node has the 900000m CPU and 0 MiB of memory in addition to its GPUs"


def busy(*, free: int, **nodes: int) -> Ledger:
    """Nodes on which all devices but `free` are taken whole."""
    ledger = make_ledger(**nodes)
    for name, gpus in nodes.items():
        hold_devices(ledger, name, *range(gpus - free))
    return ledger


def one_large_host() -> Ledger:
    ledger = make_ledger(a=2)
    add_node(ledger, "b", gpus=4, cpu_milli=1000)
    return ledger


def own_machine() -> Ledger:
    ledger = Ledger()
    add_node(ledger, "local", gpus=0, one_machine=True)
    return ledger


def unhealthy() -> Ledger:
    ledger = make_ledger(a=2)
    ledger.set_devices("a", devices=[make_device("a", 0, healthy=False), make_device("a", 1, healthy=False)])
    return ledger


def cordoned(*, beside: int = 0) -> Ledger:
    """A free node that is cordoned, and one with 4 devices of which `beside` are free."""
    ledger = busy(free=beside, a=4)
    add_node(ledger, "b", gpus=8, cordoned=True)
    return ledger


def not_ready() -> Ledger:
    ledger = Ledger()
    add_node(ledger, "a", gpus=8, obstacle="node is not ready")
    return ledger


def short_of_cpu() -> Ledger:
    """8 free devices on a node that has 20 CPUs left, 1 on another that has 40."""
    ledger = busy(free=1, b=4)
    add_node(ledger, "a", gpus=8)
    ledger.commit(Claim(key="host-a", node="a", cpu_milli=44000))
    ledger.commit(Claim(key="host-b", node="b", cpu_milli=24000))
    return ledger


def two_models() -> Ledger:
    ledger = make_ledger(a=2)
    add_node(ledger, "b", gpus=2, model="T4")
    return ledger


def mixed_and_closed() -> Ledger:
    """A V100 and a T4 on a node that a person has to open."""
    ledger = Ledger()
    add_node(ledger, "a", gpus=2, obstacle="a driver is missing")
    ledger.set_devices("a", devices=[make_device("a", 0), make_device("a", 1, model="T4")])
    return ledger


def two_vendors() -> Ledger:
    ledger = make_ledger(a=2, b=2)
    ledger.set_devices("b", devices=[make_device("b", 0, vendor="amd")])
    return ledger


def without_cpu(*free_of_pods: str, gpus: int = 4) -> Ledger:
    """Two nodes with free devices: a has no CPU left, and b takes no further pod where it is named."""
    ledger = make_ledger(a=gpus, b=gpus)
    ledger.commit(Claim(key="host-a", node="a", cpu_milli=64000))
    ledger.commit(Claim(key="host-b", node="b", cpu_milli=0 if free_of_pods else 64000))
    for name in free_of_pods:
        add_node(ledger, name, gpus=gpus, pods=1)
    return ledger


def closed(*names: str, why: str = "a driver is missing") -> Ledger:
    """Nodes that a person has to open, and c, which only starts."""
    ledger = Ledger()
    for name in names:
        add_node(ledger, name, gpus=8, obstacle=f"{why} on {name}")
    add_node(ledger, "c", gpus=8, obstacle="node is not ready")
    return ledger


def shared(**claim: int) -> Ledger:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, mode="Fractional", **claim)  # type: ignore[arg-type]
    return ledger


@pytest.mark.parametrize(
    ("ledger", "ask", "workers", "reason", "message"),
    [
        (lambda: busy(free=1, a=4), "4", 1, "Resources", "Need 4 GPUs, only 1 available"),
        (
            lambda: busy(free=1, a=4, b=4, c=4), "2", 1, "Fragmentation",
            "Need 2 GPUs, only 1 available on one node: 3 GPUs are free, but not together",
        ),
        (lambda: busy(free=2, a=4, b=4), "2", 3, "Resources", "Need 6 GPUs, only 4 available"),
        (
            lambda: make_ledger(a=8), "16", 1, "ExceedsCapacity",
            "Need 16 GPUs, only 8 available on one node: the largest request that could ever fit is 8",
        ),
        (
            lambda: make_ledger(a=4, b=4), "4", 3, "ExceedsCapacity",
            "Need 12 GPUs, only 8 available: at most 2 of 3 workers with 4 GPUs each could ever run together",
        ),
        (
            # What is of no use to a worker is not available to it.
            lambda: make_ledger(a=4, b=3, c=3, d=3), "4", 3, "ExceedsCapacity",
            "Need 12 GPUs, only 4 available: at most 1 of 3 workers with 4 GPUs each could ever run together",
        ),
        (
            lambda: make_ledger(a=8), "2(A100)", 1, "ExceedsCapacity",
            "Need 2 GPUs, only 0 available: no node has model A100, there is V100",
        ),
        (
            # A misspelled model; A100 and V100 are two models.
            lambda: make_ledger(a=8), "2(V10)", 1, "ExceedsCapacity",
            'Need 2 GPUs, only 0 available: no node has model V10, there is V100; did you mean "V100"?',
        ),
        (
            lambda: make_ledger(a=8), "1(amd)", 1, "ExceedsCapacity",
            "Need 1 GPU, only 0 available: no node has vendor amd, there is nvidia",
        ),
        (
            lambda: make_ledger(a=8), "30G,0.5", 1, "ExceedsCapacity",
            # The guard promises 0.8 of a shared device.
            f"{NONE}: need 30720 MiB on a GPU, the largest that could ever be promised is 26214 MiB",
        ),
        (
            lambda: make_ledger(a=2, b=8), "1@a/cuda:3", 1, "ExceedsCapacity",
            "Need 1 GPU, only 0 available: node a has no device cuda:3, the highest is cuda:1",
        ),
        (
            lambda: make_ledger(a=8), "1@c/cuda:0", 1, "ExceedsCapacity",
            "Need 1 GPU, only 0 available: c/cuda:0 is on no node with such a GPU",
        ),
        (
            lambda: make_ledger(a=8), "1@cuda:9", 1, "ExceedsCapacity",
            "Need 1 GPU, only 0 available: no node has a device cuda:9, the highest is cuda:7",
        ),
        (
            lambda: make_ledger(a=2), "8 with 900 CPUs", 1, "ExceedsCapacity",
            "Need 8 GPUs, only 2 available on one node: the largest request that could ever fit is 2",
        ),
        (
            lambda: make_ledger(a=8), "8 with 900 CPUs", 1, "ExceedsCapacity",
            f"{NONE.replace('1 GPU', '8 GPUs')}: {NO_HOST}",
        ),
        (
            one_large_host, "4 with 60 CPUs", 1, "ExceedsCapacity",
            "Need 4 GPUs, only 2 available on one node with 60000m CPU and 0 MiB of memory in addition",
        ),
        (Ledger, "1", 1, "ExceedsCapacity", "Need 1 GPU, only 0 available: no node reports a GPU"),
        (own_machine, "1", 1, "ExceedsCapacity", "Need 1 GPU, only 0 available: this machine has no GPU"),
        (
            unhealthy, "1", 1, "NodeUnhealthy",
            "Need 1 GPU, only 0 available: GPU 0 on node a is unhealthy: Xid79, and 1 more",
        ),
        (
            lambda: shared(share_milli=500, memory_mib=20000), "8G,0.5", 1, "MemoryGuard",
            "Need 1 GPU, only 0 available: need 8192 MiB of memory on a GPU, the most left on one is 6214 MiB",
        ),
        (
            lambda: shared(share_milli=700, memory_mib=1000), "0.5", 1, "Resources",
            "Need 1 GPU, only 0 available: the largest share left on one is 0.3",
        ),
        (cordoned, "4", 1, "Resources", "Need 4 GPUs, only 0 available"),
        (lambda: cordoned(beside=2), "4", 1, "Resources", "Need 4 GPUs, only 2 available"),
        (not_ready, "4", 1, "NodeUnhealthy", "Need 4 GPUs, only 0 available: node a is not ready"),
        (
            short_of_cpu, "4 with 30 CPUs", 1, "Resources",
            "Need 4 GPUs, only 1 available with 30000m CPU and 0 MiB of memory in addition",
        ),
        (
            short_of_cpu, "1 with 10 CPUs", 5, "Resources",
            "Need 5 GPUs, only 3 available with 10000m CPU and 0 MiB of memory in addition",
        ),
        (
            short_of_cpu, "0.1 with 10 CPUs", 8, "Resources",
            "Need 8 GPUs, only 6 available with 10000m CPU and 0 MiB of memory in addition",
        ),
        (lambda: busy(free=3, a=4, b=4), "2", 3, "Resources", "Need 6 GPUs, only 4 available"),
        (
            lambda: shared(share_milli=100, memory_mib=8192), "8G,0.1", 3, "MemoryGuard",
            "Need 3 GPUs, only 2 available: need 8192 MiB of memory on a GPU, the most left on one is 1638 MiB",
        ),
        (
            # The free devices are together, so they are no fragments: the node lacks CPU.
            without_cpu, "4 with 30 CPUs", 1, "Resources",
            "Need 4 GPUs, only 0 available with 30000m CPU and 0 MiB of memory in addition",
        ),
        (
            # Not every node with free devices is out of pods: what is said has to help on the other one too.
            lambda: without_cpu("b"), "4 with 30 CPUs", 1, "Resources",
            "Need 4 GPUs, only 0 available with 30000m CPU and 0 MiB of memory in addition",
        ),
        (
            lambda: shared(share_milli=100, memory_mib=20000), "0.5", 1, "MemoryGuard",
            "Need 1 GPU, only 0 available: need 13107 MiB of memory on a GPU, the most left on one is 6214 MiB",
        ),
        (
            lambda: shared(share_milli=1000, memory_mib=1000), "0.5", 1, "Resources",
            "Need 1 GPU, only 0 available: the largest share left on one is 0",
        ),
        (
            lambda: closed("a"), "4", 1, "NodeUnhealthy",
            "Need 4 GPUs, only 0 available: node a: a driver is missing on a, and 1 more",
        ),
        (
            lambda: closed("b", "a"), "4", 1, "NodeUnhealthy",
            "Need 4 GPUs, only 0 available: node b: a driver is missing on b, and 2 more",
        ),
        (
            lambda: closed("b", "d", "a"), "4", 1, "NodeUnhealthy",
            "Need 4 GPUs, only 0 available: node b: a driver is missing on b, and 3 more",
        ),
        (
            two_models, "30G,0.5(V100)", 1, "ExceedsCapacity",
            f"{NONE}: need 30720 MiB on a GPU, the largest that could ever be promised is 26214 MiB",
        ),
        (
            lambda: make_ledger(a=8), "1@cuda:0 with 900 CPUs", 1, "ExceedsCapacity",
            f"{NONE}: no node has the 900000m CPU and 0 MiB of memory in addition to its GPUs",
        ),
        (
            lambda: make_ledger(a=4, b=4), "2 with 40 CPUs", 3, "ExceedsCapacity",
            ("Need 6 GPUs, only 4 available: at most 2 of 3 workers with 2 GPUs, "
            "40000m CPU and 0 MiB of memory each could ever run together"),
        ),
        (
            mixed_and_closed, "1(V100)", 1, "NodeUnhealthy",
            f"{NONE}: node a: a driver is missing",
        ),
        (
            two_vendors, "1(nvidia) with 900 CPUs", 1, "ExceedsCapacity",
            f"{NONE}: no node has the 900000m CPU and 0 MiB of memory in addition to its GPUs",
        ),
        (
            # Two whole workers fit and the third does not: its fellows' devices are all that it waits for.
            lambda: busy(free=2, a=2, b=2, c=2, d=4), "2 with 1 CPUs", 5, "Resources",
            "Need 10 GPUs, only 8 available",
        ),
    ],
)  # fmt: skip
def test_a_job_that_does_not_fit_gets_a_reason_with_numbers(
    ledger: Callable[[], Ledger], ask: str, workers: int, reason: str, message: str
) -> None:
    text, _, cpus = ask.partition(" with ")
    asked = make_ask(text, cpu_milli=1000 * int(cpus.split()[0]) if cpus else 0)
    shortage = place(ledger(), ask=asked, workers=workers, key="job")
    assert shortage == Shortage(reason=reason, message=message)  # type: ignore[arg-type]


def test_all_workers_are_placed_or_none() -> None:
    claims = place(make_ledger(a=4, b=2), ask=make_ask("2"), workers=3, key="job")
    assert isinstance(claims, list)
    assert [claim.key for claim in claims] == ["job/0", "job/1", "job/2"]
    taken = [(claim.node, device.index) for claim in claims for device in claim.devices]
    assert len(set(taken)) == 6


@pytest.mark.parametrize(("workers", "least", "placed"), [(3, None, 3), (4, None, 4), (6, 2, 4), (6, 4, 4), (3, 1, 3)])
def test_as_many_workers_are_placed_as_are_asked_or_as_there_is_room_for(
    workers: int, least: int | None, placed: int
) -> None:
    claims = place(make_ledger(a=4, b=4), ask=make_ask("2"), workers=workers, key="job", least=least)
    assert isinstance(claims, list)
    assert len(claims) == placed


def test_too_few_for_the_least_is_a_shortage_of_the_least() -> None:
    found = place(busy(free=2, a=4, b=4, c=4), ask=make_ask("2"), workers=6, key="job", least=4)
    assert found == Shortage(reason="Resources", message="Need 8 GPUs, only 6 available")


@pytest.mark.parametrize(("workers", "least", "placed"), [(2, None, 2), (3, 2, 2), (3, 1, 2)])
def test_workers_that_take_a_node_each_are_placed_on_as_many_nodes(
    workers: int, least: int | None, placed: int
) -> None:
    apart = replace(make_ask("1"), apart=True)
    claims = place(make_ledger(a=4, b=4), ask=apart, workers=workers, key="job", least=least)
    assert isinstance(claims, list)
    assert sorted(claim.node for claim in claims) == ["a", "b"][:placed]
    assert [claim.key for claim in claims] == [f"job/{number}" for number in range(placed)]


def test_a_worker_that_fails_to_be_placed_takes_back_those_before_it() -> None:
    ledger = make_ledger(a=4)
    assert isinstance(place(ledger, ask=make_ask("2"), workers=3, key="job"), Shortage)
    assert (ledger.claims(), ledger.totals().promised_milli) == ([], 0)


def test_placing_never_changes_the_ledger() -> None:
    ledger = make_ledger(a=4)
    place(ledger, ask=make_ask("2"), workers=2, key="job")
    assert ledger.claims() == []
    assert ledger.totals().promised_milli == 0


def test_only_the_nodes_that_a_job_may_go_to_count() -> None:
    claims = place(make_ledger(a=8, b=8), ask=make_ask("1"), workers=2, key="job", nodes=["b"])
    assert isinstance(claims, list)
    assert {claim.node for claim in claims} == {"b"}


def test_a_job_without_devices_needs_a_node_with_cpu() -> None:
    ledger = Ledger()
    add_node(ledger, "a", gpus=0, cpu_milli=1000)
    assert isinstance(place(ledger, ask=Ask(gpu=None, cpu_milli=500), workers=2, key="job"), list)
    shortage = place(ledger, ask=Ask(gpu=None, cpu_milli=2000, memory_mib=10), workers=1, key="job")
    assert shortage == Shortage(
        reason="Resources", message="Need 2000m CPU and 10 MiB of memory, no node has it available"
    )


def test_pack_goes_to_the_started_device_and_spread_to_the_idle_node() -> None:
    ledger = make_ledger(a=2, b=2)
    hold_devices(ledger, "b", 0, share_milli=700, memory_mib=18000, mode="Fractional")
    nodes = {}
    for policy in ("Pack", "Spread"):
        claims = place(ledger, ask=make_ask("0.3", policy=policy), workers=1, key="job")  # type: ignore[arg-type]
        assert isinstance(claims, list)
        nodes[policy] = claims[0].node
    assert nodes == {"Pack": "b", "Spread": "a"}


def test_balanced_keeps_away_from_what_is_measured_hot() -> None:
    ledger = make_ledger(a=2, b=2)
    ledger.set_devices("a", devices=[make_device("a", index, utilization=0.95) for index in range(2)])
    claims = place(ledger, ask=make_ask("1", policy="Balanced"), workers=1, key="job")
    assert isinstance(claims, list)
    assert claims[0].node == "b"
