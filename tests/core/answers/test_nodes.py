"""Devices, their holders, and their sums."""

import msgspec
import pytest

from dovetail import names
from dovetail.answers.inventory import Inventory, take
from dovetail.answers.node_rows import inventory_row, tenant_counts, totals
from dovetail.answers.nodes import TenantCounts
from dovetail.answers.use.job_uses import available, job_uses
from dovetail.api.builtin import Pod
from dovetail.api.gpunode import Assignment, TenantUse
from dovetail.api.meta import Condition
from dovetail.pods.allocation import allocation_in, annotations_of
from dovetail.query.nodes.overview import overview
from tests.cli.builders import NOW, make_gpunode, make_job, make_pod


def inventory_of(*pods: Pod, **device: object) -> Inventory:
    return take([make_gpunode("a", **device)], pods=pods, scheduler="Running", namespace="default")  # type: ignore[arg-type]


def job_pod(number: int, *, index: int = 0, share: int = 1000, **changes: object) -> Pod:
    labels = {names.LABEL_JOB_NUMBER: str(number)}
    return make_pod(f"p{number}", held=((index, share, 1024),), labels=labels, **changes)  # type: ignore[arg-type]


def test_a_device_that_kubelet_assigned_is_in_use_as_its_node_reports() -> None:
    pod = make_pod("p5", asks={"nvidia.com/gpu": "1"}, labels={names.LABEL_JOB_NUMBER: "5"})
    gone = Assignment(uid="uid-gone", namespace="default", name="gone", devices=["GPU-a-0"])
    mine = Assignment(uid="uid-p5", namespace="default", name="p5", devices=["GPU-a-1"])
    gpunode = make_gpunode("a")
    status = msgspec.structs.replace(gpunode.status, assignments=[gone, mine])
    reporting = msgspec.structs.replace(gpunode, status=status)
    found = take([reporting], pods=[pod], scheduler="Running", namespace="default")
    assert [use.status(namespace="default") for use in found.devices] == ["Available", "In use by job 5"]
    # kubelet has freed the device of a pod that has ended, whatever the last report says.
    ended = make_pod("p5", asks={"nvidia.com/gpu": "1"}, labels={names.LABEL_JOB_NUMBER: "5"}, phase="Succeeded")
    found = take([reporting], pods=[ended], scheduler="Running", namespace="default")
    assert [use.status(namespace="default") for use in found.devices] == ["Available", "Available"]


@pytest.mark.parametrize(
    ("pods", "device", "status", "available"),
    [
        ((), {}, "Available", 2),
        ((job_pod(5),), {}, "In use by job 5", 1),
        ((job_pod(5, share=500), job_pod(6, share=250)), {}, "In use by job 5 (0.5), job 6 (0.25)", 1),
        ((make_pod("note", held=((0, 1000, 1),)),), {}, "In use by pod note", 1),
        ((job_pod(5, phase="Succeeded"),), {}, "Available", 2),
        ((make_pod("bad", annotations={names.ALLOCATION: "{"}),), {}, "Available", 2),
        ((), {"foreign_mib": 4096}, "unmanaged", 0),
        ((), {"foreign_mib": 100}, "Available", 2),
        (
            (job_pod(5),),
            {"health": "Unhealthy", "health_reason": "XID 79"},
            "In use by job 5; GPU 0 on node a is unhealthy: XID 79",
            0,
        ),
        (
            (),
            {"health": "Unhealthy", "health_reason": "XID 79"},
            "Unavailable: GPU 0 on node a is unhealthy: XID 79",
            0,
        ),
    ],
)
def test_each_device_has_its_status(
    pods: tuple[Pod, ...], device: dict[str, object], status: str, available: int
) -> None:
    found = inventory_of(*pods, **device)
    assert found.devices[0].status(namespace="default") == status
    assert inventory_row(found).available_gpus == available


def test_a_job_of_another_namespace_is_named_with_it() -> None:
    found = take([make_gpunode("a")], pods=[job_pod(5)], scheduler="Running", namespace="mine")
    assert found.devices[0].status(namespace="mine") == "In use by job 5 (default)"


def test_holders_are_rows_of_numbers() -> None:
    (device, _) = inventory_row(inventory_of(job_pod(5, share=500))).nodes[0].devices
    assert msgspec.to_builtins(device)["tenants"] == [
        {
            "namespace": "default",
            "pod": "p5",
            "job": 5,
            "shareMilli": 500,
            "memoryMiB": 1024,
            "workload": None,
            "usedMiB": None,
        }
    ]


def test_sums_are_over_all_devices_and_the_utilization_is_their_mean() -> None:
    sums = totals(inventory_of(job_pod(5), utilization=0.25, used_mib=100).devices)
    assert (sums.total_gpus, sums.available_gpus, sums.held_gpus) == (2, 1, 1)
    assert (sums.utilization, sums.memory_used_mib, sums.memory_total_mib) == (0.25, 200, 65536)


def test_mig_instances_are_summed_apart_from_gpus() -> None:
    split, whole = make_gpunode("a", mig_profile="3g.40gb"), make_gpunode("b", utilization=0.5)
    found = take([split, whole], pods=[job_pod(5)], scheduler="Running", namespace="default")
    sums, row = totals(found.devices), inventory_row(found)
    assert (sums.total_gpus, sums.available_gpus, sums.held_gpus, sums.utilization) == (2, 2, 0, 0.5)
    assert (sums.total_mig_instances, sums.available_mig_instances, sums.held_mig_instances) == (2, 1, 1)
    assert (row.total_gpus, row.available_gpus) == (2, 2)
    assert (row.total_mig_instances, row.available_mig_instances) == (2, 1)
    assert [device.mig_profile for node in row.nodes for device in node.devices] == ["3g.40gb", "3g.40gb", "", ""]
    # Three of a GPU's seven compute slices, as in quotas.
    assert [use.gpus for use in job_uses(found)] == [0.428]


def test_what_a_device_that_cannot_be_read_once_measured_counts_for_nothing() -> None:
    failed = Condition(
        type="Ready", status="False", reason="Driver", message="", last_transition_time="2100-01-01T00:00:00Z"
    )
    device = {"utilization": 0.5, "used_mib": 100, "tenants": [TenantUse(uid="uid-p5", used_mib=64)]}
    known, gone = make_gpunode("a", **device), make_gpunode("b", **device)  # type: ignore[arg-type]
    known = msgspec.structs.replace(
        known, status=msgspec.structs.replace(known.status, measured_at="2100-01-01T00:00:09Z")
    )
    gone = msgspec.structs.replace(gone, status=msgspec.structs.replace(gone.status, conditions=[failed]))
    pods = [job_pod(5), job_pod(5, node="b")]
    sums = totals(take([known, gone], pods=pods, scheduler="Running", namespace="default").devices)
    assert (sums.utilization, sums.memory_used_mib) == (0.5, 200)
    rows = [
        inventory_row(take([each], pods=pods, scheduler="", namespace="default")).nodes[0] for each in (known, gone)
    ]
    seen, unseen = (row.devices[0] for row in rows)
    assert (seen.measured_at, seen.used_mib, seen.tenants[0].used_mib) == ("2100-01-01T00:00:09Z", 100, 64)
    assert (unseen.measured_at, unseen.used_mib, unseen.utilization) == (None, None, None)
    assert [each.used_mib for each in unseen.tenants] == [None] * len(unseen.tenants)


def test_no_device_has_no_utilization() -> None:
    assert totals([]).utilization is None


def test_an_overview_counts_the_jobs_that_run_and_wait_and_no_ended_ones() -> None:
    jobs = [make_job("run", phase="Running"), make_job("wait", phase="Starting"), make_job("old", phase="Failed")]
    found = overview(inventory_of(utilization=1 / 3), jobs=jobs, now=NOW)
    assert (found.time, found.jobs_running, found.jobs_waiting) == ("2026-11-21T12:00:00Z", 1, 1)
    assert (found.utilization, [node.name for node in found.nodes]) == (0.3333, ["a"])


def of_kind(number: int, workload: str | None) -> Pod:
    pod = job_pod(number, share=250)
    allocation = allocation_in(pod.metadata.annotations)
    assert allocation is not None
    annotations = annotations_of(msgspec.structs.replace(allocation, workload=workload))
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def test_tenants_are_counted_by_the_workload_that_they_had_at_bind() -> None:
    found = inventory_of(of_kind(5, "Training"), of_kind(6, "Inference"), of_kind(7, "Inference"), of_kind(8, None))
    device, free = (tenant_counts(use.holders) for use in found.devices)
    assert device == TenantCounts(training=1, inference=2, unspecified=1)
    assert (str(device), str(free)) == ("1 training, 2 inference, 1 unspecified", "")
    assert totals(found.devices).tenants == device


def test_grouped_by_job_the_workers_of_a_job_are_one_entry_and_numbers_count_per_namespace() -> None:
    other = msgspec.structs.replace(
        job_pod(5, index=1, share=500),
        metadata=msgspec.structs.replace(job_pod(5, index=1, share=500).metadata, namespace="vision"),
    )
    second = msgspec.structs.replace(
        job_pod(5, index=1, share=500),
        metadata=msgspec.structs.replace(job_pod(5, index=1, share=500).metadata, name="p5-1"),
    )
    found = inventory_of(job_pod(5), second, other)
    uses = job_uses(found)
    assert [(use.namespace, use.name, use.gpus, len(use.devices)) for use in uses] == [
        ("default", "job 5", 1.5, 2), ("vision", "job 5", 0.5, 1),
    ]  # fmt: skip
    assert available(found) == {}
