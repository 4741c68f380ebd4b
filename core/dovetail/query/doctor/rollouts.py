"""Whether the chart's workloads run as the last upgrade left them, in the words with which Helm says it. Pure.

Helm judges by kstatus (sigs.k8s.io/cli-utils). Its conditions and their order are repeated here, so that a failed
`helm upgrade --wait` and the doctor print the same sentence.

A module of its own: each subject of the doctor has one, with its `judge`.
"""

from collections.abc import Iterator
from typing import Any, Final

from dovetail.answers.doctor import CheckResult
from dovetail.cluster.picture import Object, Picture, Unseen
from dovetail.query.doctor.findings import unknown

_IN_PROGRESS: Final = "InProgress"
_FAILED: Final = "Failed"


def judge(picture: Picture) -> Iterator[CheckResult]:
    """A finding for each Deployment and DaemonSet that is not as its spec says."""
    if isinstance(picture.workloads, Unseen):
        yield unknown("rollouts", unseen=picture.workloads)
        return
    found = 0
    for workload in picture.workloads:
        unready = deployment(workload) if workload.get("kind") == "Deployment" else daemonset(workload)
        if unready is None:
            continue
        found += 1
        kind, meta = workload.get("kind", ""), workload["metadata"]
        status, message = unready
        where = f"kubectl --namespace {meta['namespace']} describe {kind.lower()} {meta['name']}"
        back = f"helm rollback dovetail --namespace {picture.release}"
        message = f"resource {kind}/{meta['namespace']}/{meta['name']} not ready. status: {status}, message: {message}"
        fix = f"look at {where}; then repeat the upgrade with the right values, or: {back}"
        yield CheckResult(level="error", check="rollouts", subject=meta["name"], message=message, fix=fix)
    if picture.workloads and not found:
        yield CheckResult(level="ok", check="rollouts", message="every workload runs as the last upgrade set it")


def deployment(workload: Object) -> tuple[str, str] | None:
    """Status and message of a Deployment that is not ready; None for one that is."""
    status = workload.get("status") or {}
    if outdated := _outdated(workload, status=status, kind="Deployment"):
        return outdated
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            return _FAILED, "Progress deadline exceeded"
    wanted = workload.get("spec", {}).get("replicas", 1)
    counts = {
        name: status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
    }
    rules = (
        (wanted > counts["replicas"], f"Replicas: {counts['replicas']}/{wanted}"),
        (wanted > counts["updatedReplicas"], f"Updated: {counts['updatedReplicas']}/{wanted}"),
        (counts["replicas"] > wanted, f"Pending termination: {counts['replicas'] - wanted}"),
        (
            counts["updatedReplicas"] > counts["availableReplicas"],
            f"Available: {counts['availableReplicas']}/{counts['updatedReplicas']}",
        ),
        (wanted > counts["readyReplicas"], f"Ready: {counts['readyReplicas']}/{wanted}"),
    )
    return _first(rules)


def daemonset(workload: Object) -> tuple[str, str] | None:
    """Status and message of a DaemonSet that is not ready; None for one that is."""
    status = workload.get("status") or {}
    if outdated := _outdated(workload, status=status, kind="DaemonSet"):
        return outdated
    wanted = status.get("desiredNumberScheduled", 0)
    names = ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady")
    counts = {name: status.get(name, 0) for name in names}
    # Pods of a DaemonSet with OnDelete stay as they are until a person deletes them.
    rolls = workload.get("spec", {}).get("updateStrategy", {}).get("type") != "OnDelete"
    rules = (
        (wanted > counts["currentNumberScheduled"], f"Current: {counts['currentNumberScheduled']}/{wanted}"),
        (rolls and wanted > counts["updatedNumberScheduled"], f"Updated: {counts['updatedNumberScheduled']}/{wanted}"),
        (wanted > counts["numberAvailable"], f"Available: {counts['numberAvailable']}/{wanted}"),
        (wanted > counts["numberReady"], f"Ready: {counts['numberReady']}/{wanted}"),
    )
    return _first(rules)


def _outdated(workload: Object, *, status: dict[str, Any], kind: str) -> tuple[str, str] | None:
    wanted, observed = workload["metadata"].get("generation", 0), status.get("observedGeneration", 0)
    if wanted == observed:
        return None
    return _IN_PROGRESS, f"{kind} generation is {wanted}, but latest observed generation is {observed}"


def _first(rules: tuple[tuple[bool, str], ...]) -> tuple[str, str] | None:
    return next(((_IN_PROGRESS, message) for applies, message in rules if applies), None)
