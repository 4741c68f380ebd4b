"""Scenarios as data: what stands in the API server, and what the audit says of it."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.answers.questions import Audit, Finding
from dovetail.api.builtin import Container, Pod, Resources
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import Enforcement, GPUNode
from dovetail.audit.allocations import Rules, audit
from dovetail.pods.allocation import Allocation, ContainerAllocation, allocation_in, annotations_of
from tests.cli.builders import make_gpunode, make_job, make_node, make_pod

WHOLE = {names.GPU_MILLI: "1000"}
HALF = {names.GPU_MILLI: "500"}
USABLE = 26214  # 0.8 of 32768 MiB


def look(*pods: Pod, **more: object) -> Audit:
    return audit(
        nodes=[make_node("a"), make_node("b")], gpunodes=[make_gpunode("a"), make_gpunode("b")], pods=pods, **more
    )  # type: ignore[arg-type]


def whole(name: str, *, index: int = 0) -> Pod:
    return make_pod(name, held=((index, 1000, 32768),), asks=WHOLE, request="1")


def half(
    name: str, *, memory: int = 13107, share: int = 500, mode: str = "Fractional", guard: float | None = None
) -> Pod:
    asks = {names.GPU_TURN: "1"} if mode == "TimeShared" else {names.GPU_MILLI: str(share)}
    return make_pod(name, held=((0, share, memory),), asks=asks, mode=mode, guard=guard)


def sized(request: str, *, model: str = "V100", memory_mib: int = 32768, **rules: Any) -> set[str]:
    """What is found of a pod with this request on a device of this model."""
    pod = make_pod("x", held=((0, 1000, memory_mib),), asks=WHOLE, request=request)
    report = make_gpunode("a")
    device = msgspec.structs.replace(report.status.devices[0], model=model, memory_mib=memory_mib)
    status = msgspec.structs.replace(report.status, devices=[device])
    found = audit(
        nodes=[make_node("a")],
        gpunodes=[msgspec.structs.replace(report, status=status)],
        pods=[pod],
        rules=Rules(**rules),
    )
    return {each.message for each in found.items}


CLEAN = {
    "an empty cluster": (),
    "two whole devices held by one pod": (
        make_pod(held=((0, 1000, 32768), (1, 1000, 32768)), asks={names.GPU_MILLI: "2k"}, request="2"),
    ),
    "two halves of one device": (half("x"), half("y")),
    "four take turns on one device": tuple(half(str(n), memory=6000, share=1000, mode="TimeShared") for n in range(4)),
    "a pod that has ended holds nothing": (
        whole("x"),
        make_pod("y", held=((0, 1000, 32768),), asks=WHOLE, phase="Succeeded"),
    ),
    "a pod that asks for nothing of ours": (make_pod(),),
    "a GPU pod that waits": (make_pod(node="", asks=WHOLE, phase="Pending"),),
    "memory that is asked for is held": (
        make_pod(
            held=((0, 500, 8192),), mode="Fractional", request="8G,0.5",
            asks={**HALF, names.GPU_MEMORY_MIB: "8192"},
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("pods", CLEAN.values(), ids=CLEAN.keys())
def test_what_may_be_is_clean(pods: tuple[Pod, ...]) -> None:
    assert look(*pods).items == []


FOUND = {
    "two hold a whole device": (
        (whole("x"), whole("y")), {"NotSole", "ShareOverpromised", "MemoryOverpromised"}, "a/0"
    ),
    "shares beyond the whole": ((half("x", share=600), half("y")), {"ShareOverpromised"}, "a/0"),
    "memory beyond the usable": ((half("x", memory=USABLE), half("y", memory=1)), {"MemoryOverpromised"}, "a/0"),
    "exclusive beside a share": (
        (half("x", memory=10), make_pod("y", held=((0, 1000, 100),), asks=WHOLE)),
        {"ModeConflict", "NotSole", "ShareOverpromised"},
        "a/0",
    ),
    "a share beside turns": (
        (half("x", memory=10), half("y", memory=10, mode="TimeShared")), {"ModeConflict"}, "a/0"
    ),
    "five take turns where four may": (
        tuple(half(str(n), memory=10, mode="TimeShared") for n in range(5)), {"TooManyTurns"}, "a/0"
    ),
    "a bound GPU pod without an allocation": ((make_pod(asks=WHOLE),), {"NotAllocated"}, "default/train-0"),
    "an allocation that nobody asked for": (
        (make_pod(held=((0, 1000, 32768),)),), {"NotAsked"}, "default/train-0"
    ),
    "an allocation of a pod that is not bound": (
        (make_pod(node="", allocated_on="a", held=((0, 1000, 32768),), asks=WHOLE, phase="Pending"),),
        {"NotBound"},
        "default/train-0",
    ),
    "an allocation on another node than the pod's": (
        (make_pod(node="b", allocated_on="a", held=((0, 1000, 32768),), asks=WHOLE),), {"WrongNode"}, "default/train-0"
    ),
    "a node that is not there": (
        (make_pod(node="c", held=((0, 1000, 32768),), asks=WHOLE),), {"UnknownNode"}, "default/train-0"
    ),
    "a device that its node does not report": (
        (make_pod(held=((7, 1000, 32768),), asks=WHOLE),), {"UnknownDevice"}, "default/train-0"
    ),
    "the same device twice": (
        (make_pod(held=((0, 500, 100), (0, 500, 100)), mode="Fractional", asks=WHOLE),),
        {"DeviceTwice"},
        "default/train-0",
    ),
    "fewer devices than the resources say": (
        (make_pod(held=((0, 1000, 32768),), asks={names.GPU_MILLI: "2k"}),), {"Mismatch"}, "default/train-0"
    ),
    "fewer devices than the request says": (
        (make_pod(held=((0, 1000, 32768),), asks=WHOLE, request="2"),), {"Mismatch"}, "default/train-0"
    ),
    "a larger share than the request says": (
        (make_pod(held=((0, 500, 100),), asks=HALF, mode="Fractional", request="0.25"),),
        {"Mismatch"},
        "default/train-0",
    ),
    "less memory than the request says": (
        (make_pod(held=((0, 500, 4096),), asks=HALF, mode="Fractional", request="8G,0.5"),),
        {"Mismatch"},
        "default/train-0",
    ),
    "a request that cannot be read": (
        (make_pod(held=((0, 1000, 32768),), asks=WHOLE, request="many"),), {"Mismatch"}, "default/train-0"
    ),
    "another model than the request says": (
        (make_pod(held=((0, 1000, 32768),), asks=WHOLE, request="1(T4)"),), {"Mismatch"}, "default/train-0"
    ),
    "another vendor than the request says": (
        (make_pod(held=((0, 1000, 32768),), asks=WHOLE, request="1(amd)"),), {"Mismatch"}, "default/train-0"
    ),
    "another mode than was asked": (
        (make_pod(held=((0, 500, 100),), asks=HALF, mode="Fractional", annotations={names.MODE: "TimeShared"}),),
        {"Mismatch"},
        "default/train-0",
    ),
    "an annotation that is no allocation": (
        (make_pod(asks=WHOLE, annotations={names.ALLOCATION: "{"}),), {"BrokenAllocation"}, "default/train-0"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "kinds", "subject"), FOUND.values(), ids=FOUND.keys())
def test_what_must_not_be_is_found(pods: tuple[Pod, ...], kinds: set[str], subject: str) -> None:
    findings = look(*pods).items
    assert {finding.kind for finding in findings} == kinds
    assert {finding.subject for finding in findings} == {subject}


def test_an_init_container_that_asks_needs_an_allocation_too() -> None:
    pod = make_pod()
    init = Container(resources=Resources(limits=WHOLE))
    asking = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, init_containers=[init]))
    assert [finding.kind for finding in look(asking).items] == ["NotAllocated"]


def make_several(*devices: tuple[int, int], texts: tuple[str, str]) -> Pod:
    """A pod with two containers, each with one device (its index on the node, and the share)."""
    held = [
        AllocatedDevice(uuid=f"GPU-a-{index}", index=index, share_milli=share, memory_mib=1000)
        for index, share in devices
    ]
    allocation = Allocation(
        node="a",
        mode="Fractional",
        containers=[ContainerAllocation(index=at, devices=[device]) for at, device in enumerate(held)],
    )
    annotations = {f"{names.REQUEST}.{name}": text for name, text in zip("xy", texts, strict=True)}
    limits = [{names.GPU_MILLI: str(share)} for _, share in devices]
    containers = [
        Container(name=name, resources=Resources(limits=each)) for name, each in zip("xy", limits, strict=True)
    ]
    pod = make_pod(annotations={**annotations, **annotations_of(allocation)})
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))


def test_two_containers_may_share_a_device() -> None:
    assert look(make_several((0, 500), (0, 250), texts=("0.5", "0.25"))).items == []


def test_a_container_that_holds_what_another_asked_is_found() -> None:
    (first, second) = look(make_several((0, 500), (0, 250), texts=("0.25", "0.5"))).items
    assert first.message == "its request 0.25 is for a share of 250, but it holds 500"
    assert second.message == "its request 0.5 is for a share of 500, but it holds 250"


def test_the_finding_names_the_numbers_and_the_pods() -> None:
    (finding,) = look(half("x", share=600), half("y")).items
    assert finding == Finding(
        kind="ShareOverpromised",
        subject="a/0",
        message="1100 thousandths of it are promised, it has 1000: default/x, default/y",
    )


def test_the_rules_decide_how_much_memory_is_usable() -> None:
    pods = half("x", memory=USABLE), half("y", memory=1)
    assert look(*pods, rules=Rules(guard_fraction=0.95)).items == []


@pytest.mark.parametrize(
    ("guards", "memory_mib", "kinds"),
    [
        ((0.95, 0.95), 15564, []),
        ((0.95, 0.95), 15565, ["MemoryOverpromised"]),
        ((0.95, 0.8), 15564, ["MemoryOverpromised"]),
        ((0.95, None), 15564, ["MemoryOverpromised"]),
        ((0.8, None), 13107, []),
    ],
)
def test_the_strictest_tenant_decides_how_much_memory_is_usable(
    guards: tuple[float | None, ...], memory_mib: int, kinds: list[str]
) -> None:
    pods = [half(f"p{at}", memory=memory_mib, guard=guard) for at, guard in enumerate(guards)]
    assert [finding.kind for finding in look(*pods).items] == kinds


def by_turns(
    name: str, *, memory: int = 20480, host: str = "21Gi", movable: bool = True, mode: str = "TimeShared"
) -> Pod:
    pod = half(name, memory=memory, share=1000, mode=mode)
    held = allocation_in(pod.metadata.annotations)
    assert held is not None
    texts = annotations_of(msgspec.structs.replace(held, movable=movable))
    container = msgspec.structs.replace(
        pod.spec.containers[0], resources=Resources(requests={names.GPU_TURN: "1", "memory": host})
    )
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=pod.metadata.annotations | texts),
        spec=msgspec.structs.replace(pod.spec, containers=[container]),
    )


@pytest.mark.parametrize(
    ("pods", "kinds"),
    [
        pytest.param((by_turns("x"), by_turns("y")), [], id="both move"),
        pytest.param(
            (by_turns("x"), by_turns("y", movable=False)), ["MemoryOverpromised"], id="one was let in to stay"
        ),
        pytest.param((by_turns("x"), by_turns("y", host="20Gi")), ["MemoryOverpromised"], id="one has no room for it"),
        pytest.param((by_turns("x", memory=27000),), ["MemoryOverpromised"], id="one alone is too much"),
        pytest.param(
            (by_turns("x"), by_turns("y"), by_turns("z", memory=5735, movable=False)),
            ["MemoryOverpromised"],
            id="what stays does not fit beside each",
        ),
        pytest.param((by_turns("x"), by_turns("y"), by_turns("z", memory=5734, movable=False)), [], id="it fits"),
    ],
)
def test_the_memory_of_tenants_that_leave_by_turns_may_overlap(pods: tuple[Pod, ...], kinds: list[str]) -> None:
    assert [finding.kind for finding in look(*pods).items] == kinds


def test_only_who_takes_turns_leaves_by_turns() -> None:
    shares = [by_turns(name, mode="Fractional") for name in "xy"]
    assert "MemoryOverpromised" in {finding.kind for finding in look(*shares).items}


def test_the_report_counts_what_it_looked_at() -> None:
    report = look(whole("x"), make_pod("plain"), make_pod("ended", asks=WHOLE, phase="Failed"))
    assert (report.pods, report.devices) == (1, 4)


def test_a_running_job_whose_devices_no_pod_holds_is_found() -> None:
    job = make_job(phase="Running", devices=[("a", 0), ("a", 1)])
    pod = make_pod(held=((0, 1000, 32768),), asks=WHOLE, labels={names.LABEL_JOB: "train"})
    (finding,) = look(pod, jobs=[job]).items
    assert (finding.kind, finding.subject) == ("AllocationWithoutPod", "default/train")
    assert "device 1 of a" in finding.message


def test_a_finished_job_may_tell_the_devices_that_it_held() -> None:
    assert look(jobs=[make_job(phase="Succeeded", devices=[("a", 0)])]).items == []


# --- every finding's sentence --------------------------------------------------------------------------------------

SENTENCES = {
    "exclusive, and held by two": (
        (whole("x"), whole("y")),
        {
            ("NotSole", "a/0", "it is exclusive, but 2 hold it: default/x, default/y"),
            ("ShareOverpromised", "a/0", "2000 thousandths of it are promised, it has 1000: default/x, default/y"),
            (
                "MemoryOverpromised",
                "a/0",
                "65536 MiB of it are promised, usable are 32768 of 32768 MiB: default/x, default/y",
            ),
        },
    ),
    "two modes": (
        (half("x", memory=10), half("y", memory=10, mode="TimeShared")),
        {("ModeConflict", "a/0", "it serves Fractional and TimeShared at once: default/x, default/y")},
    ),
    "too many take turns": (
        tuple(half(str(n), memory=10, mode="TimeShared") for n in range(5)),
        {("TooManyTurns", "a/0", f"5 take turns on it, allowed are 4: {', '.join(f'default/{n}' for n in range(5))}")},
    ),
    "no allocation": (
        (make_pod(asks=WHOLE),),
        {("NotAllocated", "default/train-0", "it is bound to a and asks gpu-milli 1000, but has no allocation")},
    ),
    "nothing asked": (
        (make_pod(held=((0, 1000, 32768),)),),
        {
            (
                "NotAsked",
                "default/train-0",
                f"it holds 1 devices but asks for none of {', '.join(names.MANAGED_RESOURCES)}",
            )
        },
    ),
    "not bound": (
        (make_pod(node="", allocated_on="a", held=((0, 1000, 32768),), asks=WHOLE, phase="Pending"),),
        {("NotBound", "default/train-0", "it has an allocation on a but no node")},
    ),
    "another node": (
        (make_pod(node="b", allocated_on="a", held=((0, 1000, 32768),), asks=WHOLE),),
        {("WrongNode", "default/train-0", "it runs on b, but its allocation names a")},
    ),
    "no such node": (
        (make_pod(node="c", held=((0, 1000, 32768),), asks=WHOLE),),
        {("UnknownNode", "default/train-0", "its allocation names c: no such node")},
    ),
    "no such device": (
        (make_pod(held=((7, 1000, 32768),), asks=WHOLE),),
        {("UnknownDevice", "default/train-0", "its allocation names device GPU-a-7, which a does not report")},
    ),
    "one device twice": (
        (make_pod(held=((0, 500, 100), (0, 500, 100)), mode="Fractional", asks=WHOLE),),
        {("DeviceTwice", "default/train-0", "it holds device GPU-a-0 twice")},
    ),
    "other resources": (
        (make_pod(held=((0, 1000, 32768),), asks={names.GPU_MILLI: "2k"}),),
        {("Mismatch", "default/train-0", "it asks gpu-milli 2000, but its Exclusive allocation holds gpu-milli 1000")},
    ),
    "other memory": (
        (make_pod(held=((0, 500, 100),), mode="Fractional", asks={**HALF, names.GPU_MEMORY_MIB: "101"}),),
        {
            (
                "Mismatch",
                "default/train-0",
                (
                    "it asks gpu-memory-mib 101, gpu-milli 500, but its Fractional allocation holds "
                    "gpu-memory-mib 100, gpu-milli 500"
                ),
            )
        },
    ),
    "other turns": (
        (make_pod(held=((0, 1000, 100),), mode="TimeShared", asks={names.GPU_TURN: "2"}),),
        {("Mismatch", "default/train-0", "it asks gpu-turn 2, but its TimeShared allocation holds gpu-turn 1")},
    ),
    "fewer devices than the request": (
        (make_pod(held=((0, 1000, 32768),), asks=WHOLE, request="2"),),
        {("Mismatch", "default/train-0", "its request 2 is for 2 devices, but it holds 1")},
    ),
    "less memory than the request": (
        (make_pod(held=((0, 500, 4096),), asks=HALF, mode="Fractional", request="8G,0.5"),),
        {("Mismatch", "default/train-0", "its request 8G,0.5 is for 8192 MiB on each device, but it holds 4096")},
    ),
    "less memory than the request on one of two": (
        (make_pod(held=((0, 500, 8192), (1, 500, 4096)), asks=WHOLE, mode="Fractional", request="2x8G,0.5"),),
        {("Mismatch", "default/train-0", "its request 2x8G,0.5 is for 8192 MiB on each device, but it holds 4096")},
    ),
    "another model": (
        (make_pod(held=((0, 1000, 32768),), asks=WHOLE, request="1(T4)"),),
        {("Mismatch", "default/train-0", "its request 1(T4) is not for a nvidia V100, but it holds GPU-a-0")},
    ),
    "another mode": (
        (make_pod(held=((0, 500, 100),), asks=HALF, mode="Fractional", annotations={names.MODE: "TimeShared"}),),
        {("Mismatch", "default/train-0", "it asks mode TimeShared, but its allocation is Fractional")},
    ),
}


@pytest.mark.parametrize(("pods", "found"), SENTENCES.values(), ids=SENTENCES.keys())
def test_a_finding_names_kind_subject_and_numbers(pods: tuple[Pod, ...], found: set[tuple[str, str, str]]) -> None:
    assert {(each.kind, each.subject, each.message) for each in look(*pods).items} == found


# --- boundaries ----------------------------------------------------------------------------------------------------


def kinds(*pods: Pod, **more: object) -> list[str]:
    return [finding.kind for finding in look(*pods, **more).items]


def test_a_whole_device_may_be_promised_to_the_last_mib_beside_its_reserve() -> None:
    gpunodes = [make_gpunode("a", reserved_mib=768)]
    for memory, expected in ((32000, []), (32001, ["MemoryOverpromised"])):
        pod = make_pod("x", held=((0, 1000, memory),), asks=WHOLE)
        assert [each.kind for each in audit(nodes=[make_node("a")], gpunodes=gpunodes, pods=[pod]).items] == expected


def test_shares_may_use_the_guards_part_of_what_the_reserve_leaves() -> None:
    gpunodes = [make_gpunode("a", reserved_mib=768)]
    for memory, expected in ((25600, []), (25601, ["MemoryOverpromised"])):
        found = audit(nodes=[make_node("a")], gpunodes=gpunodes, pods=[half("x", memory=memory)])
        assert [each.kind for each in found.items] == expected


def test_one_exclusive_tenant_exempts_a_device_from_the_guard() -> None:
    """What is wrong with it is found as such, and not as memory."""
    assert "MemoryOverpromised" not in kinds(
        make_pod("x", held=((0, 500, 30000),), asks=HALF), half("y", memory=2768, share=500)
    )


def test_of_those_that_take_turns_the_largest_share_counts_once() -> None:
    smaller = half("x", memory=10, share=300, mode="TimeShared")
    larger = half("y", memory=10, share=600, mode="TimeShared")
    for beside, expected in ((400, []), (401, ["ShareOverpromised"])):
        beside_them = half("z", memory=10, share=beside)
        assert [kind for kind in kinds(smaller, larger, beside_them) if kind != "ModeConflict"] == expected


def test_of_those_that_leave_by_turns_the_largest_memory_counts_once() -> None:
    for memory, expected in ((5734, []), (5735, ["MemoryOverpromised"])):
        stays = by_turns("z", memory=memory, movable=False)
        assert kinds(by_turns("x", memory=1000), by_turns("y"), stays) == expected


def test_a_whole_devices_memory_need_not_be_asked() -> None:
    asks = {**WHOLE, names.GPU_MEMORY_MIB: "32768"}
    assert kinds(make_pod(held=((0, 1000, 32768),), asks=asks)) == []


@pytest.mark.parametrize(
    ("restart_policy", "expected"),
    [pytest.param("Always", ["Mismatch"], id="sidecars add up"), pytest.param("", [], id="init containers come first")],
)
def test_what_a_pod_asks_is_the_most_at_one_time(restart_policy: str, expected: list[str]) -> None:
    pod = whole("x")
    beside = Container(name="init", restart_policy=restart_policy, resources=Resources(requests=WHOLE))
    spec = msgspec.structs.replace(pod.spec, init_containers=[beside])
    assert kinds(msgspec.structs.replace(pod, spec=spec)) == expected


def test_the_largest_init_container_counts_where_it_asks_more_than_all_others_together() -> None:
    pod = make_pod(held=((0, 1000, 32768), (1, 1000, 32768)), asks=WHOLE)
    inits = [
        Container(name=f"i{count}", resources=Resources(requests={names.GPU_MILLI: f"{count}k"})) for count in (2, 1)
    ]
    assert kinds(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, init_containers=inits))) == []


def test_a_device_that_has_another_index_now_is_found() -> None:
    pod = whole("x")
    held = allocation_in(pod.metadata.annotations)
    assert held is not None
    (device,) = held.devices
    moved = msgspec.structs.replace(
        held, containers=[ContainerAllocation(index=0, devices=[msgspec.structs.replace(device, index=1)])]
    )
    meta = msgspec.structs.replace(pod.metadata, annotations=pod.metadata.annotations | annotations_of(moved))
    (finding,) = look(msgspec.structs.replace(pod, metadata=meta)).items
    assert (finding.kind, finding.subject) == ("UnknownDevice", "default/x")
    assert finding.message == "its allocation calls GPU-a-0 index 1, a reports index 0"


def test_a_container_that_the_pod_does_not_have_is_judged_by_the_pods_own_request() -> None:
    pod = make_several((0, 500), (0, 250), texts=("0.5", "0.25"))
    one = msgspec.structs.replace(pod.spec, containers=pod.spec.containers[:1])
    annotations = pod.metadata.annotations | {names.REQUEST: "0.3"}
    meta = msgspec.structs.replace(pod.metadata, annotations=annotations)
    messages = {each.message for each in look(msgspec.structs.replace(pod, spec=one, metadata=meta)).items}
    assert "its request 0.3 is for a share of 300, but it holds 250" in messages


# --- notes: tenants that wait to be moved ------------------------------------------------------------------------


def moves(*, turns: bool = True, checkpoint: bool = True) -> GPUNode:
    gpunode = make_gpunode("a")
    enforcement = Enforcement(turns=turns, checkpoint=checkpoint)
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, enforcement=enforcement))


@pytest.mark.parametrize(
    ("gpunode", "pods", "notes"),
    [
        pytest.param(moves(), (by_turns("x"), by_turns("y")), 0, id="the node moves them"),
        pytest.param(moves(turns=False), (by_turns("x"), by_turns("y")), 1, id="the node takes no turns now"),
        pytest.param(moves(checkpoint=False), (by_turns("x"), by_turns("y")), 1, id="the node cannot move memory now"),
        pytest.param(moves(turns=False), (by_turns("x"),), 0, id="one alone needs no move"),
        pytest.param(
            moves(turns=False), (by_turns("x", memory=13107), by_turns("y", memory=13107)), 0, id="both fit at once"
        ),
        pytest.param(moves(turns=False), (by_turns("x", memory=27000),), 0, id="too much even by turns: a finding"),
        pytest.param(
            moves(turns=False),
            (by_turns("x", memory=26214, host="27Gi"), by_turns("y", memory=1)),
            1,
            id="just too much together, just enough by turns",
        ),
    ],
)
def test_a_note_names_devices_whose_tenants_nothing_moves(gpunode: GPUNode, pods: tuple[Pod, ...], notes: int) -> None:
    report = audit(nodes=[make_node("a")], gpunodes=[gpunode], pods=pods)
    assert len(report.notes) == notes


def test_a_note_has_the_numbers_and_the_pods() -> None:
    (note,) = audit(nodes=[make_node("a")], gpunodes=[moves(turns=False)], pods=[by_turns("y"), by_turns("x")]).notes
    assert note == (
        "a/0: 40960 MiB are promised by turns, usable are 26214, and the node moves no tenant to the host now: "
        "default/x, default/y"
    )


# --- jobs ----------------------------------------------------------------------------------------------------------


def test_the_devices_of_all_pods_of_a_job_count() -> None:
    job = make_job(workers=2, phase="Running", devices=[("a", 0), ("a", 1)])
    pods = [
        make_pod(f"train-{index}", held=((index, 1000, 32768),), asks=WHOLE, labels={names.LABEL_JOB: "train"})
        for index in (0, 1)
    ]
    assert look(*pods, jobs=[job]).items == []


def test_a_finished_job_does_not_hide_a_running_one() -> None:
    jobs = [
        make_job("done", phase="Succeeded", devices=[("a", 0)]),
        make_job("lost", phase="Running", devices=[("a", 1)]),
    ]
    assert [finding.subject for finding in look(jobs=jobs).items] == ["default/lost"]


@pytest.mark.parametrize(
    ("request_", "model", "memory_mib"),
    [("1(>=32G)", "V100", 32768), ("1(>=80G)", "NVIDIA A100-SXM4-80GB", 81100), ("1(V100,>=32G)", "V100", 32510)],
)
def test_a_device_of_the_nominal_size_is_what_was_asked(request_: str, model: str, memory_mib: int) -> None:
    assert sized(request_, model=model, memory_mib=memory_mib) == set()


def test_a_device_of_an_excluded_model_is_found() -> None:
    assert sized("1(!T4)") == set()
    (message,) = sized("1(!V100)")
    assert message.startswith("its request 1(!V100) is not for a nvidia V100")


def test_percent_of_memory_is_held_of_the_device_itself() -> None:
    def messages(held_mib: int) -> list[str]:
        pod = make_pod("x", held=((0, 500, held_mib),), asks={names.GPU_MILLI: "500"}, request="50%,0.5")
        report = audit(nodes=[make_node("a")], gpunodes=[make_gpunode("a", reserved_mib=768)], pods=[pod])
        return [each.message for each in report.items]

    assert messages(16000) == []
    assert messages(15999) == ["its request 50%,0.5 is for 16000 MiB of GPU-a-0, but it holds 15999"]


def test_a_job_on_a_device_below_its_nominal_size_is_found() -> None:
    assert sized("1(>=80G)") == {"its request 1(>=80G) is not for a V100 of 32 GB, but it holds GPU-a-0"}
    assert sized("1(V100,>=32G)", memory_mib=16160) == {
        "its request 1(V100,>=32G) is not for a V100 of 16 GB, but it holds GPU-a-0"
    }


def test_the_audit_reads_the_configured_sizes_of_models() -> None:
    assert sized("1(>=12G)", model="X9", memory_mib=11000)
    assert sized("1(>=12G)", model="X9", memory_mib=11000, memory_specs={"X9": 12}) == set()


@pytest.mark.parametrize(
    ("request_", "profile", "held"),
    [("1", "1g.10gb", "a MIG instance of 1g.10gb"), ("1g.10gb", "", "a whole GPU"),
     ("1g.10gb", "3g.40gb", "a MIG instance of 3g.40gb")],
)  # fmt: skip
def test_an_instance_is_held_by_who_asks_its_profile_alone(request_: str, profile: str, held: str) -> None:
    report = make_gpunode("a")
    device = msgspec.structs.replace(report.status.devices[0], mig_profile=profile)
    gpunode = msgspec.structs.replace(report, status=msgspec.structs.replace(report.status, devices=[device]))

    def messages(text: str) -> list[str]:
        pod = make_pod("x", held=((0, 1000, 32768),), asks=WHOLE, request=text)
        return [each.message for each in audit(nodes=[make_node("a")], gpunodes=[gpunode], pods=[pod]).items]

    (message,) = messages(request_)
    assert message.startswith(f"its request {request_} is not for {held}, but it holds ")
    assert messages(profile or "1") == []
