"""A snapshot reads back exactly, and is the stage of an experiment: what stands, who waits, and the mix."""

from typing import Any

import pytest

from dovetail.fragmentation.pod_shapes import Shape
from dovetail.simulator.arrivals import filling
from dovetail.simulator.parallel import Scene, run_one
from dovetail.simulator.scenario import stage
from dovetail.simulator.snapshot import (
    Snapshot,
    SnapshotClaim,
    SnapshotDevice,
    SnapshotError,
    SnapshotJob,
    SnapshotNode,
    SnapshotShare,
    parse,
    to_json,
    to_yaml,
)
from dovetail.simulator.trace import columns_of


def device(index: int, *, model: str = "V100", **facts: Any) -> SnapshotDevice:
    return SnapshotDevice(index=index, uuid=f"GPU-{index}", vendor="nvidia", model=model, memory_mib=32768, **facts)


def node(name: str = "a", *devices: SnapshotDevice, **facts: Any) -> SnapshotNode:
    given = {"managed": True, "obstacle": "", "cordoned": False, "cpu_milli": 64_000, "memory_mib": 262_144}
    return SnapshotNode(name=name, devices=list(devices or (device(0), device(1))), **{**given, **facts})  # type: ignore[arg-type]


def claim(*shares: tuple[int, int], on: str = "a", **facts: Any) -> SnapshotClaim:
    given = {"pod": "p", "namespace": "ns", "job": "", "mode": "Fractional", "cpu_milli": 2000, "memory_mib": 1024}
    devices = [SnapshotShare(index=index, share_milli=milli, memory_mib=100) for index, milli in shares]
    return SnapshotClaim(node=on, devices=devices, **{**given, **facts})  # type: ignore[arg-type]


def job(request: str = "1", **facts: Any) -> SnapshotJob:
    given = {
        "kind": "GPUJob", "name": "j", "namespace": "ns", "phase": "Queued", "mode": "Exclusive", "policy": "Pack",
        "workers": 1, "priority": 10, "cpu_milli": 1000, "memory_mib": 512, "submitted_at": "2026-11-21T12:00:00Z",
    }  # fmt: skip
    return SnapshotJob(request=request, **{**given, **facts})  # type: ignore[arg-type]


def snapshot(
    *nodes: SnapshotNode, claims: tuple[SnapshotClaim, ...] = (), jobs: tuple[SnapshotJob, ...] = ()
) -> Snapshot:
    return Snapshot(
        taken_at="2026-11-21T12:00:00Z", anonymous=False, turns_per_device=4, nodes=list(nodes or (node(),)),
        claims=list(claims), jobs=list(jobs),
    )  # fmt: skip


FULL = snapshot(
    node("a", device(0, foreign_mib=5, healthy=False), device(1, cordoned=True), device(2, mig_profile="1g.10gb")),
    node("ü", obstacle="node is not ready", other_cpu_milli=3),
    claims=(claim((0, 500), (1, 250), job="j"), claim(instances={"1g.10gb": 2})),
    jobs=(job("8G,0.5(T4)", limit_seconds=5, ended_at="2026-11-21T13:00:00Z"), job("cpu", kind="Pod")),
)


@pytest.mark.parametrize("write", [to_json, to_yaml])
@pytest.mark.parametrize("original", [FULL, snapshot()])
def test_it_reads_back_exactly(write: Any, original: Snapshot) -> None:
    text = write(original)
    assert parse(text, source="s") == original
    assert write(parse(text, source="s")) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", 's: expected a snapshot with "snapshot: 1", there is none'),
        ("a: [", "s: neither JSON nor YAML"),
        ("[1]", 'expected a snapshot with "snapshot: 1", there is none'),
        ('{"snapshot": 2}', 'there is "2"'),
        ('{"snapshot": 1, "takenAt": "x"}', "Object missing required field"),
        (to_json(FULL).replace('"cpuMilli": 64000', '"cpuMilli": -1'), "`$.nodes[0].cpuMilli`"),
        (to_json(FULL).replace('"node": "a"', '"node": "z"'), 'is on node "z", which is not among nodes'),
    ],
)
def test_what_is_no_snapshot_is_told_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SnapshotError) as told:
        parse(text, source="s")
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)


def test_the_stage_begins_with_what_is_taken() -> None:
    staged = stage(
        snapshot(
            node("a", other_cpu_milli=500, other_memory_mib=24),
            claims=(claim((0, 300)), claim((0, 250)), claim((1, 1000), mode="Exclusive")),
        )
    )
    columns = columns_of(staged.nodes)
    for choice in staged.taken:
        columns.place(choice)
    assert columns.left[0].tolist() == [450, 0]
    assert columns.spare[0].tolist() == [64_000 - 6500, 262_144 - 3 * 1024 - 24, 450, 0]


def test_devices_that_nobody_has_named_are_the_first_free_ones() -> None:
    staged = stage(snapshot(node("a", device(0), device(1), device(2)), claims=(claim(unnamed=1), claim((0, 100)))))
    assert [choice.devices for choice in staged.taken if choice.devices] == [(0,), (1,)]
    assert [shape.share_milli for shape in staged.mix] == [1000, 100]


def test_devices_and_nodes_that_take_nothing_are_left_out() -> None:
    staged = stage(
        snapshot(
            node("a", device(0, healthy=False), device(1), device(2, cordoned=True)),
            node("b", cordoned=True),
            node("c", obstacle="node is not ready"),
            claims=(claim((1, 400)), claim((0, 100)), claim((0, 100), on="b")),
        )
    )
    assert [(each.name, each.gpus) for each in staged.nodes] == [("a", 1)]
    assert staged.closed_nodes == 2
    # The share on the device that is left; both pods on it take their CPU.
    assert [(choice.devices, choice.shape.share_milli) for choice in staged.taken if choice.devices] == [((0,), 400)]
    assert sum(choice.shape.cpu_milli for choice in staged.taken) == 4000


def test_jobs_wait_in_the_order_of_the_queue_and_those_that_could_never_fit_do_not() -> None:
    staged = stage(
        snapshot(
            jobs=(
                job("1", cpu_milli=1, submitted_at="2026-11-21T12:00:01Z"),
                job("1", cpu_milli=2, submitted_at="2026-11-21T12:00:00Z", workers=2),
                job("1", cpu_milli=3, priority=20),
                job("3", cpu_milli=4),
                job("1(H100)", cpu_milli=5),
                job("1", cpu_milli=6, phase="Succeeded"),
            )
        )
    )
    assert [shape.cpu_milli for shape in staged.waiting] == [3, 2, 2, 1]
    assert staged.impossible == 2
    assert sorted(shape.cpu_milli for shape in staged.mix) == [1, 2, 2, 3, 6]


@pytest.mark.parametrize(
    ("asked", "shapes"),
    [
        (job("0.5"), [Shape(cpu_milli=1000, memory_mib=512, gpus=1, share_milli=500)]),
        (job("2x0.25"), [Shape(cpu_milli=500, memory_mib=256, gpus=1, share_milli=250)] * 2),
        (job("2", mode="TimeShared"), [Shape(cpu_milli=500, memory_mib=256, gpus=1, share_milli=250)] * 2),
        (job("1(nvidia)"), [Shape(cpu_milli=1000, memory_mib=512, gpus=1, share_milli=1000, models=("V100",))]),
        (job("1(V100M32)"), [Shape(cpu_milli=1000, memory_mib=512, gpus=1, share_milli=1000, models=("V100M32",))]),
        (job("1(V100M16)"), []),
        (job("1(>=32G)"), [Shape(cpu_milli=1000, memory_mib=512, gpus=1, share_milli=1000, models=("V100",))]),
        (job("1(nvidia,V100,>=33G)"), []),
        (job("cpu"), [Shape(cpu_milli=1000, memory_mib=512)]),
    ],
)
def test_what_a_job_asks_becomes_shapes(asked: SnapshotJob, shapes: list[Shape]) -> None:
    assert list(stage(snapshot(jobs=(asked,))).waiting) == shapes


def test_pods_of_no_job_are_part_of_the_mix() -> None:
    staged = stage(snapshot(claims=(claim((0, 500)), claim((1, 250), job="j"))))
    assert [shape.share_milli for shape in staged.mix] == [500]


def test_a_request_that_cannot_be_read_is_told_with_its_job() -> None:
    with pytest.raises(SnapshotError, match="job j: gpu"):
        stage(snapshot(jobs=(job("many"),)))


@pytest.mark.parametrize("policy", ["ph", "pack", "fgd", "spread"])
def test_every_policy_goes_on_from_what_stands(policy: str) -> None:
    staged = stage(snapshot(node("a"), node("b"), claims=(claim((0, 600)),), jobs=(job("0.4"), job("1"), job("2"))))
    outcome = run_one(
        policy, scene=Scene(nodes=staged.nodes, visits=filling(staged.waiting), pods=staged.mix, taken=staged.taken)
    )
    assert outcome.begun_milli == 600
    assert outcome.allocated_milli[-1] in {4000, 2000}


def instances(*profiles: str) -> tuple[SnapshotDevice, ...]:
    return tuple(device(1 + at, mig_profile=profile) for at, profile in enumerate(profiles))


PARTITIONED = snapshot(
    node("a", device(0), *instances("1g.5gb", "1g.5gb", "3g.20gb")),
    node("b", device(0), *instances("1g.5gb")),
    claims=(claim((2, 1000), mode="Exclusive"), claim(on="b", instances={"1g.5gb": 1}), claim((0, 500), on="b")),
    jobs=(job("2x1g.5gb", workers=2), job("3g.20gb"), job("1"), job("cpu")),
)


def test_mig_instances_are_no_gpus_of_an_experiment() -> None:
    found = stage(PARTITIONED)
    assert [each.gpus for each in found.nodes] == [1, 1]
    assert sum(choice.shape.gpu_milli for choice in found.taken) == 500
    # What tenants of instances take of the host counts.
    assert sum(choice.shape.cpu_milli for choice in found.taken) == 6000
    assert [shape.gpus for shape in found.waiting] == [1, 0]
    assert found.of_other_devices == 3


def test_the_instances_of_a_profile_are_the_devices_of_an_experiment() -> None:
    found = stage(PARTITIONED, profile="1g.5gb")
    assert [each.gpus for each in found.nodes] == [2, 1]
    assert [(choice.node, choice.devices) for choice in found.taken if choice.devices] == [(0, (1,)), (1, (0,))]
    assert [shape.gpus for shape in found.waiting] == [2, 2, 0]
    assert (found.of_other_devices, found.impossible) == (2, 0)


def test_a_profile_without_instances_leaves_nodes_without_devices() -> None:
    found = stage(PARTITIONED, profile="7g.40gb")
    assert [each.gpus for each in found.nodes] == [0, 0]
    assert [shape.gpus for shape in found.waiting] == [0]
