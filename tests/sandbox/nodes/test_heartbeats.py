"""How often simulated nodes renew their Leases: kwokctl's configuration by the number of nodes."""

from typing import Any

from tests.sandbox.nodes.kwok_documents import configured


def options(nodes: int) -> dict[str, Any]:
    found: dict[str, Any] = configured(nodes=nodes)["options"]
    return found


def test_up_to_a_thousand_nodes_leases_last_as_long_as_kubelet_makes_them() -> None:
    assert "nodeLeaseDurationSeconds" not in options(1_000)


def test_with_more_nodes_leases_and_the_patience_of_controllers_grow_in_proportion() -> None:
    found = options(5_000)
    assert found["nodeLeaseDurationSeconds"] == 5 * 40
    assert found["kubeControllerManagerNodeMonitorGracePeriodMilliseconds"] == 5 * 50_000
