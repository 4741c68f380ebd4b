"""Scenarios as data: what stands in the API server, and what the audit says of it."""

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Container, Pod, Resources
from dovetail.audit.allocations import Report, Rules, audit
from dovetail.audit.findings import Finding
from dovetail.pods.allocation import AllocatedDevice, Allocation, ContainerAllocation, allocation_in, annotations_of
from tests.cli.builders import make_gpunode, make_job, make_node, make_pod

WHOLE = {names.GPU_MILLI: "1000"}
HALF = {names.GPU_MILLI: "500"}
USABLE = 26214  # 0.8 of 32768 MiB


def look(*pods: Pod, **more: object) -> Report:
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
    assert look(*pods).findings == ()


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
    findings = look(*pods).findings
    assert {finding.kind for finding in findings} == kinds
    assert {finding.subject for finding in findings} == {subject}


def test_an_init_container_that_asks_needs_an_allocation_too() -> None:
    pod = make_pod()
    init = Container(resources=Resources(limits=WHOLE))
    asking = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, init_containers=[init]))
    assert [finding.kind for finding in look(asking).findings] == ["NotAllocated"]


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
    assert look(make_several((0, 500), (0, 250), texts=("0.5", "0.25"))).findings == ()


def test_a_container_that_holds_what_another_asked_is_found() -> None:
    (first, second) = look(make_several((0, 500), (0, 250), texts=("0.25", "0.5"))).findings
    assert first.message == "its request 0.25 is for a share of 250, but it holds 500"
    assert second.message == "its request 0.5 is for a share of 500, but it holds 250"


def test_the_finding_names_the_numbers_and_the_pods() -> None:
    (finding,) = look(half("x", share=600), half("y")).findings
    assert finding == Finding(
        kind="ShareOverpromised",
        subject="a/0",
        message="1100 thousandths of it are promised, it has 1000: default/x, default/y",
    )


def test_the_rules_decide_how_much_memory_is_usable() -> None:
    pods = half("x", memory=USABLE), half("y", memory=1)
    assert look(*pods, rules=Rules(guard_fraction=0.95)).findings == ()


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
    assert [finding.kind for finding in look(*pods).findings] == kinds


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
    assert [finding.kind for finding in look(*pods).findings] == kinds


def test_only_who_takes_turns_leaves_by_turns() -> None:
    shares = [by_turns(name, mode="Fractional") for name in "xy"]
    assert "MemoryOverpromised" in {finding.kind for finding in look(*shares).findings}


def test_the_report_counts_what_it_looked_at() -> None:
    report = look(whole("x"), make_pod("plain"), make_pod("ended", asks=WHOLE, phase="Failed"))
    assert (report.pods, report.devices) == (1, 4)


def test_a_running_job_whose_devices_no_pod_holds_is_found() -> None:
    job = make_job(phase="Running", devices=[("a", 0), ("a", 1)])
    pod = make_pod(held=((0, 1000, 32768),), asks=WHOLE, labels={names.LABEL_JOB: "train"})
    (finding,) = look(pod, jobs=[job]).findings
    assert (finding.kind, finding.subject) == ("AllocationWithoutPod", "default/train")
    assert "device 1 of a" in finding.message


def test_a_finished_job_may_tell_the_devices_that_it_held() -> None:
    assert look(jobs=[make_job(phase="Succeeded", devices=[("a", 0)])]).findings == ()
