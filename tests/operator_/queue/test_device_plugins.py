"""GPUJobs on nodes of a vendor's plugin: the kind is chosen at admission, kubelet picks, the report says which."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Job, Node, Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.ranking import Ranking
from dovetail.gpu.device_plugins import Vendors
from dovetail.pods.demand import ask_of_pod
from dovetail.queue.verdicts import Admitted, Waits
from dovetail_operator.job.actions import CreateJob, DeleteJob
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.manifests.batch_job import Manifest
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.state.state import State, build_state
from tests.operator_.builders import NOW, make_child, make_job, make_pod

GPU = "nvidia.com/gpu"


def make_state(*, managed: int = 0, vendor: int = 0, model: str = "V100", vendors: Vendors | None = None) -> State:
    state = build_state(ClusterView(ledger=Ledger(), vendors=vendors or Vendors()))
    if managed:
        add_node(state, "managed", gpus=managed, labels={names.LABEL_MANAGED: "true"})
    if vendor:
        add_node(state, "vendor", gpus=vendor, model=model, there={GPU: str(vendor)})
    return state


def add_node(
    state: State,
    name: str,
    *,
    gpus: int,
    model: str = "V100",
    labels: dict[str, str] | None = None,
    there: dict[str, str] | None = None,
) -> None:
    amounts = {"cpu": "64", "memory": "256Gi", **(there or {})}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "labels": labels or {}}
    state.store.view.node_changed(msgspec.convert({"metadata": metadata, "status": status}, Node))
    state.store.gpunode_changed(make_report(name, gpus=gpus, model=model))


def make_report(
    name: str = "vendor", *, gpus: int = 4, model: str = "V100", given: dict[str, list[int]] | None = None
) -> GPUNode:
    devices = [
        {"index": i, "uuid": f"GPU-{name}-{i}", "vendor": "nvidia", "model": model, "memoryMiB": 32768}
        for i in range(gpus)
    ]
    assignments = [
        {"uid": uid, "namespace": "team", "name": uid, "devices": [f"GPU-{name}-{i}" for i in indexes]}
        for uid, indexes in (given or {}).items()
    ]
    status = {"devices": devices, "assignments": assignments}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, GPUNode)


def submit(state: State, **spec: Any) -> None:
    state.store.job_changed(make_job(**spec))
    state.decisions.set_number("uid-x", number=7)
    for verdict in decide(state, cycle=survey(state, now=NOW)):
        state.decisions.set_verdict(verdict.key, verdict=verdict)


def created(state: State) -> Manifest:
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    (action,) = reconcile(seen).actions
    assert isinstance(action, CreateJob)
    return action.manifest


def vendor_child(state: State) -> Job:
    """The batch Job that is made for the job, as the API server has it."""
    child = make_child(state.store.jobs["team/x"])
    metadata = msgspec.structs.replace(child.metadata, annotations=created(state)["metadata"]["annotations"])
    return msgspec.structs.replace(child, metadata=metadata)


def container(manifest: Manifest) -> Manifest:
    found: Manifest = manifest["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("managed", "vendor", "first", "resource"),
    [(4, 4, "Managed", None), (4, 4, "Vendor", GPU), (1, 4, "Managed", GPU), (0, 4, "Managed", GPU)],
    ids=["managed first", "vendor first by configuration", "no room on managed nodes", "a vendor's cluster"],
)
def test_the_kind_of_node_is_chosen_when_the_job_is_let_go(
    managed: int, vendor: int, first: Any, resource: str | None
) -> None:
    state = make_state(managed=managed, vendor=vendor, vendors=Vendors(first=first))
    submit(state, gpu=2)
    manifest = created(state)
    assert manifest["metadata"].get("annotations", {}).get(names.GPU_RESOURCE) == resource
    asked = {GPU: "2"} if resource else {names.GPU_MILLI: "2000"}
    assert container(manifest)["resources"] == {"requests": asked, "limits": asked}


def test_a_pod_of_a_vendor_s_node_is_left_to_the_plugin() -> None:
    state = make_state(vendor=4)
    template = {
        "spec": {
            "runtimeClassName": "site",
            "containers": [
                {"name": "main", "env": [{"name": names.ENV_VISIBLE_DEVICES, "value": "all"}, {"name": "A"}]},
                {"name": "side"},
            ],
        }
    }
    submit(state, gpu="2(V100)", template=template)
    spec = created(state)["spec"]["template"]["spec"]
    main, side = spec["containers"]
    assert (spec["schedulerName"], spec["runtimeClassName"]) == ("dovetail", "site")
    assert [entry["name"] for entry in main["env"]] == [names.ENV_JOB_ID, names.ENV_CUDA_DEVICES, "A"]
    assert side["env"] == [{"name": names.ENV_VISIBLE_DEVICES, "value": names.NO_DEVICES}]


def test_the_extender_reads_such_a_pod_as_the_job_was_meant() -> None:
    state = make_state(vendor=4)
    submit(state, gpu="2(V100)", policy="Spread")
    template = created(state)["spec"]["template"]
    pod = msgspec.convert({"metadata": template["metadata"], "spec": template["spec"]}, Pod)
    assert ask_of_pod(pod, ranking=Ranking(policy="Pack")) == state.requests.ask_of(state.store.jobs["team/x"])


def test_a_job_that_was_let_go_on_one_kind_stays_on_it() -> None:
    state = make_state(vendor=4)
    submit(state, gpu=2, suspend=True)
    job = state.store.jobs["team/x"]
    state.store.job_changed(make_job(gpu=2, meta={"resourceVersion": "11", "generation": 2}))
    child = make_child(job, suspend=True)
    annotated = msgspec.structs.replace(child.metadata, annotations={names.GPU_RESOURCE: GPU})
    state.store.child_event("ADDED", msgspec.structs.replace(child, metadata=annotated))
    add_node(state, "managed", gpus=8, labels={names.LABEL_MANAGED: "true"})
    (verdict,) = decide(state, cycle=survey(state, now=NOW))
    assert isinstance(verdict, Admitted)
    assert {claim.node for claim in verdict.claims} == {"vendor"}


def test_a_suspended_job_is_made_anew_where_only_the_other_kind_has_room() -> None:
    state = make_state(managed=2, vendor=4)
    state.decisions.set_number("uid-x", number=7)
    job = make_job(gpu=4)
    state.store.job_changed(job)
    state.store.child_event("ADDED", make_child(job, suspend=True))
    for verdict in decide(state, cycle=survey(state, now=NOW)):
        state.decisions.set_verdict(verdict.key, verdict=verdict)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert reconcile(seen).actions == (DeleteJob(),)
    state.store.child_event("DELETED", make_child(job, suspend=True))
    survey(state, now=NOW)
    assert container(created(state))["resources"]["limits"] == {GPU: "4"}


def test_workers_on_the_way_to_a_vendor_s_node_keep_their_room() -> None:
    state = make_state(vendor=4)
    submit(state, gpu=3)
    state.store.child_event("ADDED", vendor_child(state))
    state.store.job_changed(make_job("y", gpu=2))
    state.decisions.set_number("uid-y", number=8)
    (verdict,) = decide(state, cycle=survey(state, now=NOW))
    assert isinstance(verdict, Waits)
    assert verdict.message.startswith("Need 2 GPUs, only 1 available")


def running_on_vendor(state: State, *, phase: str = "Running") -> Pod:
    return msgspec.convert(
        {
            "metadata": values_of(make_pod(0, node="vendor", meta={"uid": "pod-0"}).metadata),
            "spec": {"nodeName": "vendor", "containers": [{"name": "main", "resources": {"limits": {GPU: 2}}}]},
            "status": {"phase": phase},
        },
        Pod,
    )


def started(state: State) -> None:
    submit(state, gpu=2)
    state.store.child_event("ADDED", vendor_child(state))
    state.store.pod_event("ADDED", running_on_vendor(state))


def shown(state: State) -> list[tuple[str, int, str]]:
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    return [(device.node, device.index, device.uuid) for device in reconcile(seen).status.devices]


def test_the_status_shows_the_devices_once_the_report_names_them() -> None:
    state = make_state(vendor=4)
    started(state)
    assert shown(state) == []
    report = make_report(given={"pod-0": [1, 3]})
    assert state.store.gpunode_changed(report) == ["team/x"]
    assert shown(state) == [("vendor", 1, "GPU-vendor-1"), ("vendor", 3, "GPU-vendor-3")]
    assert state.store.gpunode_changed(report) == []


def test_a_job_that_is_over_tells_the_devices_that_it_had() -> None:
    state = make_state(vendor=4)
    started(state)
    state.store.gpunode_changed(make_report(given={"pod-0": [0, 1]}))
    state.store.pod_event("MODIFIED", running_on_vendor(state, phase="Succeeded"))
    state.store.gpunode_changed(make_report())
    job = state.store.jobs["team/x"]
    ended = make_child(job, status={"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1})
    state.store.child_changed(
        msgspec.structs.replace(ended, metadata=msgspec.structs.replace(ended.metadata, resource_version="21"))
    )
    assert [index for _, index, _ in shown(state)] == [0, 1]


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        ({"gpu": "0.5"}, "ExceedsCapacity", "a vendor's plugin, which gives whole ones only"),
        ({"gpu": "1(A100)"}, "ExceedsCapacity", "no node has model A100, there is V100"),
        ({"gpu": 8}, "ExceedsCapacity", "Need 8 GPUs, only 4 available on one node"),
        ({"resources": {"vendor": "amd"}}, "ExceedsCapacity", "no node advertises amd.com/gpu"),
    ],
    ids=["a share", "another model", "too many", "another vendor"],
)
def test_a_job_that_a_vendor_s_cluster_cannot_have_is_told_why(spec: dict[str, Any], reason: str, message: str) -> None:
    state = make_state(vendor=4)
    submit(state, **spec)
    verdict = state.decisions.verdicts["uid-x"]
    assert isinstance(verdict, Waits)
    assert verdict.reason == reason
    assert message in verdict.message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {
                "gpu": 1,
                "template": {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: 2}}}]}},
            },
            'spec.template "nvidia.com/gpu": spec.gpu says how many GPUs a worker gets; write for example gpu: 2',
        ),
        ({"gpu": "0.5(amd,MI300X)"}, "a share needs a node that Dovetail manages"),
    ],
    ids=["a template that asks itself", "a share of what is never managed"],
)
def test_what_can_never_start_is_invalid_in_one_sentence(spec: dict[str, Any], message: str) -> None:
    state = make_state(vendor=4)
    obstacle = state.obstacle_of(make_job(**spec), now=NOW)
    assert obstacle is not None
    assert obstacle.reason == "Invalid"
    assert message in obstacle.message
