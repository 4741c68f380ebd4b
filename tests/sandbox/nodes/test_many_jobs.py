"""What the Job controller of a sandbox may do at a time: kwokctl's configuration of kube-controller-manager."""

from pathlib import Path

import yaml

from dovetail_sandbox.nodes import kwok


def test_the_controller_manager_handles_many_batch_jobs_at_a_time_and_writes_endpoints_seldom() -> None:
    programs = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl")
    text = kwok.configuration(
        ports=dict.fromkeys(kwok.PORTS, 1),
        binaries={name: Path(name) for name in programs},
        kube_version="v1.36.3",
        pki=Path("pki"),
        real_node=False,
    )
    patches = {each["name"]: each for each in next(yaml.safe_load_all(text))["componentsPatches"]}
    arguments = {each["key"]: each["value"] for each in patches["kube-controller-manager"]["extraArgs"]}
    assert arguments["concurrent-job-syncs"] == "32"
    assert arguments["endpoint-updates-batch-period"] == arguments["endpointslice-updates-batch-period"] == "1s"
