"""What the doctor says of an upgrade that did not end: the words of `helm upgrade --wait`."""

from typing import Any

import pytest

from dovetail.cluster.picture import Unseen
from dovetail.query.doctor import rollouts
from tests.core.query.doctor.test_diagnosis import picture

DONE = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}
EVERYWHERE = {"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "updatedNumberScheduled": 2}
EVERYWHERE |= {"numberAvailable": 2, "numberReady": 2}
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


def workload(kind: str, *, status: dict[str, Any], observed: int = 3, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "dovetail-x", "namespace": "home", "generation": 3}
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": {**status, "observedGeneration": observed}}


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"replicas": 1}, "InProgress, message: Replicas: 1/2"),
        ({"updatedReplicas": 1}, "InProgress, message: Updated: 1/2"),
        ({"replicas": 3}, "InProgress, message: Pending termination: 1"),
        ({"availableReplicas": 1}, "InProgress, message: Available: 1/2"),
        ({"readyReplicas": 1}, "InProgress, message: Ready: 1/2"),
        ({"conditions": [LATE]}, "Failed, message: Progress deadline exceeded"),
    ],
)
def test_a_deployment_that_is_not_rolled_out_is_named_as_helm_does(status: dict[str, Any], sentence: str) -> None:
    stuck = workload("Deployment", status={**DONE, **status}, replicas=2)
    (finding,) = rollouts.judge(picture(workloads=[stuck]))
    assert finding.level == "error"
    assert finding.message == f"resource Deployment/home/dovetail-x not ready. status: {sentence}"
    assert "helm rollback dovetail --namespace dovetail-system" in finding.fix


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"currentNumberScheduled": 1}, "Current: 1/2"),
        ({"updatedNumberScheduled": 0}, "Updated: 0/2"),
        ({"numberAvailable": 1}, "Available: 1/2"),
        ({"numberReady": 0}, "Ready: 0/2"),
    ],
)
def test_a_daemonset_too(status: dict[str, int], sentence: str) -> None:
    (finding,) = rollouts.judge(picture(workloads=[workload("DaemonSet", status={**EVERYWHERE, **status})]))
    assert finding.message.endswith(f"DaemonSet/home/dovetail-x not ready. status: InProgress, message: {sentence}")


def test_a_change_that_no_controller_has_seen_yet_is_in_progress() -> None:
    assert rollouts.deployment(workload("Deployment", status=DONE, observed=2, replicas=2)) == (
        "InProgress",
        "Deployment generation is 3, but latest observed generation is 2",
    )


def test_pods_that_only_a_person_replaces_are_not_awaited() -> None:
    old = {**EVERYWHERE, "updatedNumberScheduled": 0}
    assert rollouts.daemonset(workload("DaemonSet", status=old, updateStrategy={"type": "OnDelete"})) is None


def test_workloads_in_order_are_one_good_finding_and_unseen_ones_are_unknown() -> None:
    fine = [workload("Deployment", status=DONE, replicas=2), workload("DaemonSet", status=EVERYWHERE)]
    (finding,) = rollouts.judge(picture(workloads=fine))
    assert finding.level == "ok"
    (finding,) = rollouts.judge(picture(workloads=Unseen(why="you may not list deployments", missing=False)))
    assert finding.level == "unknown"
