"""The examples of each kind, and what is expected of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail import names
from dovetail.decoding import convert
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.jobs.guests.registry import KINDS
from dovetail.jobs.guests.trainjob import TrainJobs, composed

FOLDER: Final = Path(__file__).parents[4] / "examples" / "kinds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The record of an example: its name and number of workers; and all pods of the guest."""

    name: str
    workers: int
    pods: int


EXPECTED: Final = {
    "Job": Expected(name="job-train", workers=2, pods=2),
    "JobSet": Expected(name="jobset-together", workers=4, pods=5),
    "RayJob": Expected(name="rayjob-tune", workers=4, pods=5),
    "RayCluster": Expected(name="raycluster-notebook", workers=2, pods=3),
    "MPIJob": Expected(name="mpijob-allreduce", workers=2, pods=3),
    "TrainJob": Expected(name="trainjob-finetune", workers=2, pods=2),
}


def example(kind: Kind) -> dict[str, Any]:
    """The example of a kind as it is written."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{kind.resource.kind.lower()}.yaml").read_text(encoding="utf-8"))
    return found


def guest(kind: Kind, *, status: dict[str, Any] | None = None, **metadata: Any) -> Guest:
    """The example of a kind as the API server has it."""
    body = example(kind)
    meta = {**body["metadata"], "namespace": "team", "uid": "uid-guest", "resourceVersion": "7", **metadata}
    found = convert({**body, "metadata": meta, "status": status or {}}, as_type=Guest)
    return composed(found, job_set=job_set_of(found)) if isinstance(kind, TrainJobs) else found


def job_set_of(found: Guest, *, run: str = "r", version: int = 3, nodes: int | None = None) -> Guest:
    """The JobSet that Kubeflow Trainer makes of a TrainJob, as the webhook has left it."""
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": found.metadata.name,
        "uid": found.metadata.uid,
        "controller": True,
    }
    count = nodes or found.spec["trainer"]["numNodes"]
    template = {
        "metadata": {"labels": {names.RUN: run}, "annotations": {names.REQUEST: "1"}},
        "spec": {"containers": [{"name": "node", "image": "busybox"}]},
    }
    job = {"spec": {"parallelism": count, "completions": count, "template": template}}
    meta = {
        "name": found.metadata.name,
        "namespace": found.metadata.namespace,
        "labels": {names.RUN: run},
        "ownerReferences": [owner],
        "resourceVersion": str(version),
    }
    spec = {"replicatedJobs": [{"name": "node", "template": job}]}
    return convert({"metadata": meta, "spec": spec}, as_type=Guest)


def kind_named(name: str) -> Kind:
    """The adapter of a kind."""
    return next(kind for kind in KINDS if kind.resource.kind == name)
