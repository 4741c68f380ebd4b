"""What a pod that the queue has gated says of itself."""

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.config.settings import Settings
from dovetail.query.explain.subjects import of_pod
from tests.operator_.builders import make_job


@pytest.mark.parametrize(
    ("labels", "annotations", "record"),
    [
        ({}, {}, "pod-worker-0"),
        ({names.POD_GROUP: "pair"}, {}, "podgroup-pair"),
        ({}, {names.GANG: "PodGroup.scheduling.k8s.io/train"}, "schedulinggroup-train"),
    ],
    ids=["alone", "group", "gang"],
)
def test_a_pod_in_the_queue_names_the_gpujob_that_says_why_it_waits(
    labels: dict[str, str], annotations: dict[str, str], record: str
) -> None:
    labels = {names.LABEL_QUEUE: "default", **labels}
    meta = {"name": "worker-0", "namespace": "team", "labels": labels, "annotations": annotations}
    spec = {"containers": [{"name": "main"}], "schedulingGates": [{"name": names.QUEUE_GATE}]}
    notes = of_pod({"metadata": meta, "spec": spec}, settings=Settings()).notes
    assert tuple(map(str, notes)) == (
        "kube-scheduler does not look at it while it has the gates dovetail.dev/queue",
        f"it waits in the queue as GPUJob {record}, and dovetail explain {record} says what for",
    )


def test_a_pod_that_an_object_in_the_queue_has_made_names_its_gate_alone() -> None:
    gates = [{"name": names.QUEUE_GATE}]
    raw = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}], "schedulingGates": gates}}
    assert len(of_pod(raw, settings=Settings()).notes) == 1


def guest(name: str, *, of: str, reason: str) -> GPUJob:
    """The record of an object with that UID."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": of}
    status = {"phase": "Queued", "reason": reason, "message": "it says why"}
    job = make_job(name, meta={"ownerReferences": [owner]}, status=status)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, managed_by=names.GUESTS_MANAGER))


def test_of_several_records_a_pod_has_the_words_of_its_own() -> None:
    meta = {"name": "p", "namespace": "team", "uid": "uid-p", "labels": {names.LABEL_QUEUE: "default"}}
    raw = {
        "metadata": meta,
        "spec": {"containers": [{"name": "main"}], "schedulingGates": [{"name": names.QUEUE_GATE}]},
    }
    records = [guest("pod-other", of="uid-other", reason="Quota"), guest("pod-p", of="uid-p", reason="Resources")]
    for jobs in (records, records[::-1]):
        _, queued, more = map(str, of_pod(raw, settings=Settings(), jobs=jobs).notes)
        assert queued.startswith("it waits in the queue as GPUJob pod-p: Resources, ")
        assert more == "dovetail explain job pod-p says more"
