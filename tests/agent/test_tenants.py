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
