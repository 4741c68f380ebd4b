"""A change of the release's ConfigMap counts while the programs run: the queue and the extender take it at once."""

from collections.abc import Iterator

import pytest

from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs
from tests.cluster.test_cli import main_output

pytestmark = pytest.mark.cluster


@pytest.fixture
def limits(sandbox: Cluster) -> Iterator[list[str]]:
    """How `dovetail limits` is called; what a test has set is put back."""
    where = ["--kubeconfig", str(sandbox.kubeconfig)]
    yield where
    main_output("limits", "unset", *where, "training_per_device")


async def test_a_job_that_waits_for_a_limit_starts_once_the_limit_is_raised(limits: list[str], jobs: Jobs) -> None:
    first = await jobs.submit("first", gpu="0.3", workload="Training")
    (device,) = (await jobs.phase("Running", "first")).devices
    assert first.spec.workload == "Training"
    here = f"0.3@{device.node}/cuda:{device.index}"
    await jobs.submit("second", gpu=here, workload="Training")
    await jobs.phase("Queued", "second", reason="Resources")
    assert main_output("limits", "set", *limits, "training_per_device=2") == "training_per_device: 1 -> 2\n"
    # The operator plans it, and the extender binds its pod by the same limit.
    (same,) = (await jobs.phase("Running", "second")).devices
    assert same.uuid == device.uuid
    await jobs.submit("third", gpu=here, workload="Training")
    await jobs.phase("Queued", "third", reason="Resources")


async def test_a_quota_that_a_command_sets_counts_at_once(sandbox: Cluster, namespace: str, jobs: Jobs) -> None:
    where = ["--kubeconfig", str(sandbox.kubeconfig)]
    try:
        said = main_output("quota", "set", *where, namespace, "--namespaces", namespace, "--running-jobs", "1")
        assert said == f"GPUQuota {namespace} created: running-jobs 1, for {namespace}.\n"
        await jobs.submit("first")
        await jobs.phase("Running", "first")
        await jobs.submit("second")
        await jobs.phase("Queued", "second", reason="Quota")
        said = main_output("quota", "set", *where, namespace, "--running-jobs", "none", "--max-priority", "50")
        assert said == f"GPUQuota {namespace} changed: max-priority 50, for {namespace}.\n"
        await jobs.phase("Running", "second")
    finally:
        assert main_output("quota", "delete", *where, namespace) == f"GPUQuota {namespace} deleted.\n"
