"""What the Job controller of a sandbox may do at a time: kwokctl's configuration of kube-controller-manager."""

from tests.sandbox.nodes.kwok_documents import configured


def test_the_controller_manager_handles_many_batch_jobs_at_a_time_and_writes_endpoints_seldom() -> None:
    patches = {each["name"]: each for each in configured()["componentsPatches"]}
    arguments = {each["key"]: each["value"] for each in patches["kube-controller-manager"]["extraArgs"]}
    assert arguments["concurrent-job-syncs"] == "32"
    assert arguments["endpoint-updates-batch-period"] == arguments["endpointslice-updates-batch-period"] == "1s"
