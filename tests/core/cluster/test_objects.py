"""The cluster's objects, read at one moment: whose pods and batch Jobs they are, and what follows from them."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Job, Node, Pod, ResourceSlice
from dovetail.api.gpujob import GPUJob
from dovetail.cluster.batch_jobs import inferred_batch_job
from dovetail.cluster.dra_drivers import NodeDrivers
from dovetail.cluster.objects import ClusterObjects
from dovetail.cluster.view import ClusterView, node_facts
from dovetail.config.settings import Settings
from dovetail.engine.ledger.ledger import Ledger
from dovetail.pods.allocation import Allocation, annotations_of
from dovetail.pods.node_affinity import REMOVED_SOON
from tests.core.builders import make_gpunode, make_node
from tests.operator_.builders import at, make_child, make_job, make_pod

PLACEMENT = {"generation": 1, "nodes": [{"name": "n1", "workers": 4}], "worker": {"request": "1"}, "released": [2, 3]}


def objects(**there: Any) -> ClusterObjects:
    nothing: dict[str, Any] = {"nodes": (), "gpunodes": (), "pods": (), "jobs": (), "settings": Settings()}
    return ClusterObjects(**{**nothing, **there})


def renamed(pod: Pod, uid: str, **meta: Any) -> Pod:
    changed = msgspec.to_builtins(pod.metadata) | {"name": uid, "uid": uid} | meta
    return msgspec.structs.replace(pod, metadata=msgspec.convert(changed, type(pod.metadata)))


def bound_as_of(job: str) -> dict[str, str]:
    return annotations_of(Allocation(node="n1", mode="Exclusive", containers=[], priority=10, job=job))


# --- pods ------------------------------------------------------------------------------------------------------------


def test_a_pod_is_of_the_job_that_its_owner_proves_in_its_own_namespace() -> None:
    pods = [
        renamed(make_pod(), "own"),
        renamed(make_pod(), "other", namespace="other"),
        renamed(make_pod(), "says so alone", ownerReferences=[]),
        renamed(make_pod(), "of another", labels={names.LABEL_JOB: "y"}),
        renamed(make_pod(), "nobody's", labels={}, ownerReferences=[]),
        renamed(make_pod(), "relabelled", labels={names.LABEL_JOB: "y"}, annotations=bound_as_of("x")),
        # Its allocation names the job; its batch Job has left it behind.
        renamed(make_pod(), "left behind", ownerReferences=[], annotations=bound_as_of("x")),
    ]
    found = objects(pods=pods).pods_by_job()
    assert {key: [pod.metadata.uid for pod in each] for key, each in found.items()} == {
        "team/x": ["own", "relabelled"], "other/x": ["other"],
    }  # fmt: skip


def test_pods_are_asked_for_the_oldest_first_with_their_namespace_s_ranking_and_without_those_that_ended() -> None:
    def asks(uid: str, *, gpu: str = "1", **how: Any) -> Pod:
        meta = {"annotations": {names.REQUEST: gpu}, "labels": {}, "ownerReferences": []}
        pod = renamed(make_pod(**how), uid, **meta)
        limits = {names.GPU_MILLI: str(int(1000 * float(gpu)))} if gpu != "?" else {}
        spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
        return msgspec.structs.replace(pod, spec=msgspec.convert(spec, type(pod.spec)))

    pods = [
        asks("young", created=-10),
        asks("ended", created=-90, phase="Succeeded"),
        asks("unreadable", gpu="?", created=-70),
        asks("old", created=-80),
    ]
    settings = Settings(policy="Pack", namespace_policies={"team": "Spread"})
    found = dict(objects(pods=pods, settings=settings).asks_of_pods())
    assert list(found) == ["old", "unreadable", "young"]
    old = found["old"]
    assert old is not None
    assert (old.policy, found["unreadable"]) == ("Spread", None)


# --- batch Jobs ------------------------------------------------------------------------------------------------------

RUNS = {"phase": "Running", "startTime": at(-50), "attempt": 3, "workersSucceeded": 1}


def test_a_job_s_own_batch_job_is_the_one_that_it_owns() -> None:
    job, replaced = make_job(status=RUNS), make_job("y", status=RUNS)
    earlier = make_child(make_job("y", meta={"uid": "uid-before"}))
    elsewhere = make_child(make_job(meta={"namespace": "other"}))
    found = objects(batch_jobs=[elsewhere, make_child(job), earlier]).batch_job_of([job, replaced, make_job("z")])
    assert {uid: child.metadata.namespace for uid, child in found.items()} == {"uid-x": "team"}


def test_who_may_not_read_batch_jobs_takes_them_from_the_status_and_the_pods() -> None:
    job, idle = make_job(status=RUNS), make_job("idle", status={"phase": "Queued"})
    pods = [make_pod(owner="uid-now", created=-5), make_pod(1, owner="uid-before", created=-90)]
    unread = objects(pods=pods, jobs=[job, idle])
    assert {uid: child.metadata.uid for uid, child in unread.batch_job_of([job, idle]).items()} == {"uid-x": "uid-now"}
    assert objects(pods=pods, batch_jobs=[]).batch_job_of([job]) == {}


def implied(job: GPUJob, *pods: Pod) -> Job:
    found = inferred_batch_job(job, pods=pods)
    assert found is not None
    return found


def test_the_implied_batch_job_has_the_attempt_the_way_and_the_workers_of_the_status() -> None:
    placement = PLACEMENT | {"worker": {"request": "1", "resource": "amd.com/gpu"}, "released": []}
    found = implied(make_job(workers=4, backoffLimit=2, status=RUNS | {"placement": placement}))
    assert found.metadata.annotations == {names.ATTEMPT: "3", names.GPU_RESOURCE: "amd.com/gpu"}
    assert (found.spec.parallelism, found.spec.completions, found.spec.backoff_limit) == (4, 4, 2)
    assert (found.status.start_time, found.status.succeeded, found.metadata.uid) == (at(-50), 1, "")
    released = implied(make_job(workers=4, status=RUNS | {"placement": PLACEMENT}))
    assert (released.spec.parallelism, released.spec.completions) == (2, 2)
    elastic = implied(make_job(workers=4, minWorkers=1, status=RUNS | {"elastic": {"workers": 3, "requested": 4}}))
    assert elastic.spec.parallelism == 3
    assert implied(make_job(status=RUNS | {"device": "cpu"})).metadata.annotations[names.DEVICE] == "cpu"
    assert names.DEVICE not in implied(make_job(status=RUNS | {"device": "cuda"})).metadata.annotations


def test_the_implied_batch_job_is_that_of_the_newest_pod_with_a_proof() -> None:
    job = make_job(status=RUNS)
    pods = [
        make_pod(owner="uid-old", created=-90),
        make_pod(owner="uid-new", created=-9),
        renamed(make_pod(owner="uid-forged", created=-1), "forged", labels={names.LABEL_JOB: "y"}),
    ]
    assert implied(job, *pods).metadata.uid == "uid-new"
    (owner,) = implied(job).metadata.owner_references
    assert owner.uid == "uid-x"


@pytest.mark.parametrize("phase", ["Queued", "Held", "Preempted", "Suspended", "Succeeded", "Failed", None])
def test_a_job_that_neither_starts_nor_runs_implies_no_batch_job(phase: str | None) -> None:
    assert inferred_batch_job(make_job(status={"phase": phase} if phase else {}), pods=[make_pod()]) is None
    starts = {"phase": "Starting"}
    assert inferred_batch_job(make_job(status=starts), pods=[]) is not None
    assert inferred_batch_job(make_job(array={"indexes": "0-3"}, status=starts), pods=[]) is None


# --- the view --------------------------------------------------------------------------------------------------------


def test_the_view_knows_slices_ages_and_pods() -> None:
    made = {"metadata": {"name": "s"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "a"}}
    slices = [msgspec.convert(made, ResourceSlice)]
    there = {"nodes": [make_node()], "gpunodes": [make_gpunode()]}
    assert objects(**there).view().ledger.obstacle("a") == ""
    assert "DRA driver" in objects(**there, slices=slices).view().ledger.obstacle("a")
    report = msgspec.structs.replace(make_gpunode().status, observed_at="2020-01-01T00:00:00Z")
    silent = msgspec.structs.replace(make_gpunode(), status=report)
    told = objects(**there | {"gpunodes": [silent]}, settings=Settings(measurement_max_age=600)).view()
    assert told.ledger.unmeasured_reason("a") == "measurements of node a are more than 10 min old: promises alone count"


def test_a_view_over_another_ledger_knows_which_nodes_a_driver_may_serve() -> None:
    view = ClusterView(ledger=Ledger(), drivers=NodeDrivers(clock=lambda: 0.0))
    view.node_changed(make_node())
    claims = {"nodeName": "a", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    pod = {"metadata": {"name": "p", "namespace": "team", "uid": "p"}, "spec": claims, "status": {"phase": "Running"}}
    view.pod_changed(msgspec.convert(pod, Pod))
    other = view.over(Ledger())
    assert view.facts_of("a").obstacle
    assert other.facts_of("a") == view.facts_of("a")
    assert (other.vendors, other.closed("b")) == (view.vendors, view.closed("b"))


def test_a_node_says_each_taint_by_which_it_is_emptied() -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in sorted(REMOVED_SOON)]
    node = msgspec.to_builtins(make_node())
    node["spec"] = {"taints": [*taints, {"key": "mine", "effect": "NoSchedule"}], "unschedulable": True}
    found = node_facts(msgspec.convert(node, Node)).unavailable
    assert [each.detail for each in found if each.cause == "NodeDrained"] == [f"taint {each['key']}" for each in taints]
    assert "NodeCordoned" in {each.cause for each in found}
    assert len(taints) > 1
