import msgspec
import pytest

from dovetail import names
from dovetail_agent.tenants import promised_mib, promised_milli, tenant_of
from tests.agent.builders import allocated, make_pod


def test_a_bound_pod_is_a_tenant_with_what_its_allocation_says() -> None:
    tenant = tenant_of(make_pod(allocated(0, share_milli=500, memory_mib=8192)))
    assert tenant is not None
    assert (tenant.node, tenant.running, tenant.cpu_milli, tenant.memory_mib) == ("v100-0", True, 2000, 4096)
    uuid = allocated(0).uuid
    assert (promised_milli(tenant, uuid=uuid), promised_mib(tenant, uuid=uuid)) == (500, 8192)
    assert promised_milli(tenant, uuid=allocated(1).uuid) == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_no_tenant(phase: str) -> None:
    assert tenant_of(make_pod(allocated(0), phase=phase)) is None


def test_a_pod_that_is_not_bound_is_no_tenant() -> None:
    assert tenant_of(make_pod(node="")) is None


def test_a_starting_pod_is_a_tenant_that_does_not_run() -> None:
    tenant = tenant_of(make_pod(allocated(0), phase="Pending"))
    assert tenant is not None
    assert not tenant.running


def test_workers_of_a_job_are_one_workload() -> None:
    tenant = tenant_of(make_pod(labels={names.LABEL_JOB: "train"}))
    assert tenant is not None
    assert tenant.workload == "ml/train"


def test_a_broken_allocation_is_a_tenant_without_devices() -> None:
    tenant = tenant_of(make_pod(annotations={names.ALLOCATION: "{"}))
    assert tenant is not None
    assert tenant.devices == ()


@pytest.mark.parametrize(
    ("text", "priority"), [(None, 10), ("0", 0), ("255", 255), ("999", 255), ("-1", 10), ("x", 10)]
)
def test_the_weight_in_turns_is_what_the_annotation_says_within_bounds(text: str | None, priority: int) -> None:
    pod = make_pod(allocated(0))
    annotations = {**pod.metadata.annotations, **({} if text is None else {names.PRIORITY: text})}
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
    found = tenant_of(pod)
    assert found is not None
    assert found.priority == priority


def test_a_pod_that_was_told_to_end_is_leaving() -> None:
    pod = make_pod(allocated(0))
    gone = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T12:00:00Z")
    found = tenant_of(pod), tenant_of(msgspec.structs.replace(pod, metadata=gone))
    assert [each.leaving for each in found if each] == [False, True]
