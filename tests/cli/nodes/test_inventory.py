import csv
import io
from datetime import timedelta

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpunode import Assignment, Enforcement
from dovetail.query.inventory import Inventory, take
from dovetail_cli.cluster import scheduler_health
from dovetail_cli.nodes import inventory
from dovetail_cli.ui import output
from tests.cli.builders import NOW, make_gpunode, make_pod


def inventory_of(*pods: Pod, **device: object) -> Inventory:
    return take([make_gpunode("a", **device)], pods, scheduler="Running", namespace="default")  # type: ignore[arg-type]


def job_pod(number: int, *, index: int = 0, share: int = 1000, **changes: object) -> Pod:
    labels = {names.LABEL_JOB_NUMBER: str(number)}
    return make_pod(f"p{number}", held=((index, share, 1024),), labels=labels, **changes)  # type: ignore[arg-type]


def test_the_text_is_the_one_that_people_know() -> None:
    text = inventory.text(
        inventory_of(job_pod(5), utilization=0.354, used_mib=1024, temperature_celsius=45, power_watts=120)
    )
    assert text.splitlines()[:13] == [
        "Scheduler Status: Running",
        "Total GPUs: 2",
        "Available GPUs: 1",
        "",
        "Node a",
        "  Enforcement: none",
        "  GPU 0: V100",
        "    UUID: GPU-a-0",
        "    Status: In use by job 5",
        "    Memory: 1024/32768 MiB",
        "    Utilization: 35%",
        "    Temperature: 45 C",
        "    Power: 120 W",
    ]


def test_what_a_node_enforces_is_told_in_words_and_why_not_to_programs() -> None:
    gpunode = make_gpunode("a")
    enforcement = Enforcement(turns=True, time_slicing=True, reasons={"mps": "MPS is switched off"})
    reporting = msgspec.structs.replace(
        gpunode, status=msgspec.structs.replace(gpunode.status, enforcement=enforcement)
    )
    found = take([reporting], [], scheduler="Running", namespace="default")
    assert "Node a\n  Enforcement: turns, time-slicing\n" in inventory.text(found)
    assert inventory.record(found)["nodes"][0]["enforcement"]["reasons"] == {"mps": "MPS is switched off"}


def test_a_device_that_kubelet_gave_out_is_in_use_as_its_node_reports() -> None:
    pod = make_pod("p5", asks={"nvidia.com/gpu": "1"}, labels={names.LABEL_JOB_NUMBER: "5"})
    gone = Assignment(uid="uid-gone", namespace="default", name="gone", devices=["GPU-a-0"])
    mine = Assignment(uid="uid-p5", namespace="default", name="p5", devices=["GPU-a-1"])
    gpunode = make_gpunode("a")
    status = msgspec.structs.replace(gpunode.status, assignments=[gone, mine])
    reporting = msgspec.structs.replace(gpunode, status=status)
    found = take([reporting], [pod], scheduler="Running", namespace="default")
    assert [use.status(namespace="default") for use in found.devices] == ["Available", "In use by job 5"]


def test_what_the_driver_does_not_give_is_said_to_be_missing() -> None:
    assert "    Temperature: not available\n    Power: not available" in inventory.text(inventory_of())


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
        ((job_pod(5),), {"health": "Unhealthy", "health_reason": "XID 79"}, "unhealthy (XID 79)", 0),
    ],
)
def test_each_device_has_its_status(
    pods: tuple[Pod, ...], device: dict[str, object], status: str, available: int
) -> None:
    found = inventory_of(*pods, **device)
    assert inventory.record(found)["nodes"][0]["devices"][0]["status"] == status
    assert inventory.record(found)["available_gpus"] == available


def test_a_job_of_another_namespace_is_told_with_it() -> None:
    found = take([make_gpunode("a")], [job_pod(5)], scheduler="Running", namespace="mine")
    assert found.devices[0].status(namespace="mine") == "In use by job 5 (default)"


def test_no_gpu_at_all_is_said() -> None:
    text = inventory.text(take([], [], scheduler="Unknown", namespace="default"))
    assert text == "Scheduler Status: Unknown\nTotal GPUs: 0\nAvailable GPUs: 0\nNo node reports a GPU."


def test_csv_has_a_row_a_device() -> None:
    text = output.as_csv(inventory.rows(inventory_of(job_pod(5))), columns=inventory.CSV_COLUMNS)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["node"], row["index"], row["status"]) for row in rows] == [
        ("a", "0", "In use by job 5"),
        ("a", "1", "Available"),
    ]


def lease(*, renewed_seconds_ago: float | None, holder: str | None = "x") -> scheduler_health.Lease:
    renewed = None if renewed_seconds_ago is None else NOW - timedelta(seconds=renewed_seconds_ago)
    return scheduler_health.Lease(
        spec=scheduler_health.LeaseSpec(
            holder_identity=holder,
            renew_time=None if renewed is None else renewed.isoformat(),
            lease_duration_seconds=15,
        )
    )


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (lease(renewed_seconds_ago=3), "Running"),
        (lease(renewed_seconds_ago=300), "Not running (last seen 5m00s ago)"),
        (lease(renewed_seconds_ago=3, holder=None), "Not running (nobody holds its Lease)"),
        (lease(renewed_seconds_ago=None), "Not running (nobody holds its Lease)"),
    ],
)
def test_a_scheduler_runs_as_long_as_its_lease_is_renewed(seen: scheduler_health.Lease, status: str) -> None:
    assert scheduler_health.judge_lease(seen, now=NOW) == status


@pytest.mark.parametrize(("replicas", "status"), [(1, "Running"), (0, "Not running (no replica is available)")])
def test_a_deployment_runs_with_one_replica_that_is_available(replicas: int, status: str) -> None:
    deployment = scheduler_health.Deployment(status=scheduler_health.DeploymentStatus(available_replicas=replicas))
    assert scheduler_health.judge_deployment(deployment) == status
