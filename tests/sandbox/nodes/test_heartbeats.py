"""How often simulated nodes renew their Leases: kwokctl's configuration by the number of nodes."""

from pathlib import Path
from typing import Any

import yaml

from dovetail_sandbox.nodes import kwok


def options(nodes: int) -> dict[str, Any]:
    programs = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl")
    text = kwok.configuration(
        ports=dict.fromkeys(kwok.PORTS, 1),
        binaries={name: Path(name) for name in programs},
        kube_version="v1.36.3",
        pki=Path("pki"),
        real_node=False,
        nodes=nodes,
    )
    found: dict[str, Any] = next(yaml.safe_load_all(text))["options"]
    return found


def test_up_to_a_thousand_nodes_leases_last_as_long_as_kubelet_makes_them() -> None:
    assert "nodeLeaseDurationSeconds" not in options(1_000)


def test_with_more_nodes_leases_and_the_patience_of_controllers_grow_in_proportion() -> None:
    found = options(5_000)
    assert found["nodeLeaseDurationSeconds"] == 5 * 40
    assert found["kubeControllerManagerNodeMonitorGracePeriodMilliseconds"] == 5 * 50_000
