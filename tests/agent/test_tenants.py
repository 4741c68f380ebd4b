from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_agent.tenants import promised_mib, promised_milli, work_of
from tests.agent.builders import allocated, make_pod


def bound_with(**fixed: Any) -> Pod:
    """A pod whose allocation says that of it."""
    parts = [ContainerAllocation(index=0, devices=[allocated(0)])]
    allocation = Allocation(node="v100-0", mode="TimeShared", containers=parts, **fixed)
    return make_pod(annotations=annotations_of(allocation))


def test_a_bound_pod_is_a_tenant_with_what_its_allocation_says() -> None:
    tenant = tenant_of_pod(make_pod(allocated(0, share_milli=500, memory_mib=8192)))
    assert tenant is not None
    assert (tenant.running, tenant.cpu_milli, tenant.memory_mib) == (True, 2000, 4096)
    uuid = allocated(0).uuid
    assert (promised_milli(tenant, uuid=uuid), promised_mib(tenant, uuid=uuid)) == (500, 8192)
    assert promised_milli(tenant, uuid=allocated(1).uuid) == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_no_tenant(phase: str) -> None:
    assert tenant_of_pod(make_pod(allocated(0), phase=phase)) is None


def test_a_pod_that_is_not_bound_is_no_tenant() -> None:
    assert tenant_of_pod(make_pod(node="")) is None


def test_a_starting_pod_is_a_tenant_that_does_not_run() -> None:
    tenant = tenant_of_pod(make_pod(allocated(0), phase="Pending"))
    assert tenant is not None
    assert not tenant.running


def test_workers_of_a_job_are_one_workload() -> None:
    tenants = [tenant_of_pod(bound_with(priority=10, job=job)) for job in ("train", "")]
    assert [work_of(tenant) for tenant in tenants if tenant] == ["ml/train", "ml/train-0"]


def test_a_broken_allocation_is_a_tenant_without_devices() -> None:
    tenant = tenant_of_pod(make_pod(annotations={names.ALLOCATION: "{"}))
    assert tenant is not None
    assert tenant.devices == []


@pytest.mark.parametrize(("fixed", "weight"), [(0, 0), (40, 40), (255, 255), (None, 10)])
@pytest.mark.parametrize("said", ["1", "255", "9" * 5000])
def test_what_a_pod_was_at_bind_outlasts_its_labels_and_annotations(fixed: int | None, weight: int, said: str) -> None:
    pod = bound_with(priority=fixed)
    meta = msgspec.structs.replace(
        pod.metadata,
        labels={names.LABEL_RESERVATION: "true", names.LABEL_JOB: "train"},
        annotations={**pod.metadata.annotations, names.PRIORITY: said, names.WORKLOAD: "Inference"},
    )
    found = tenant_of_pod(msgspec.structs.replace(pod, metadata=meta))
    assert found is not None
    assert (found.priority, found.reservation, found.workload, work_of(found)) == (weight, False, None, "ml/train-0")


def test_a_reservation_is_what_the_allocation_says() -> None:
    found = tenant_of_pod(bound_with(priority=10, reservation=True, workload="Training"))
    assert found is not None
    assert (found.reservation, found.workload) == (True, "Training")


def test_a_pod_that_was_told_to_end_is_leaving() -> None:
    pod = make_pod(allocated(0))
    gone = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T12:00:00Z")
    found = tenant_of_pod(pod), tenant_of_pod(msgspec.structs.replace(pod, metadata=gone))
    assert [each.leaving for each in found if each] == [False, True]
