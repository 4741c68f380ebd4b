"""Objects of other kinds that wait in the queue, as their users write them. Pure."""

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Final, Protocol

from dovetail import names
from dovetail.api.resources import JOBS, PODS, Resource
from dovetail.jobs.guests.replicas import DEPLOYMENTS, LEADERWORKERSETS, STATEFULSETS
from tests.cluster.kinds import JOBSETS, MPIJOBS, RAYCLUSTERS, RAYJOBS

Body = dict[str, Any]
Made = list[tuple[Resource, Body]]


class Maker(Protocol):
    """Makes the objects of one guest."""

    def __call__(self, name: str, *, rng: Random) -> Made:
        """The objects of a guest of this name."""


TRAINJOBS: Final = Resource(
    group="trainer.kubeflow.org", version="v1alpha1", plural="trainjobs", kind="TrainJob"
)  # fmt: skip
RUNTIMES: Final = Resource(
    group="trainer.kubeflow.org", version="v1alpha1", plural="clustertrainingruntimes", kind="ClusterTrainingRuntime",
    namespaced=False,
)  # fmt: skip
RUNTIME: Final = "soak"
_TRAINING_SECONDS: Final = 20
_SIZES: Final = ("1", "1", "0.5")


def _template(
    *, gpu: str | None, seconds: float = 0.0, name: str = "main", labels: Mapping[str, str] = MappingProxyType({})
) -> Body:
    asked = {} if gpu is None else {names.REQUEST: gpu}
    return {
        "metadata": {"labels": dict(labels), "annotations": {names.RUN_SECONDS: f"{seconds:.1f}", **asked}},
        "spec": {"containers": [{"name": name, "image": "busybox"}]},
    }


def _job_spec(*, rng: Random, gpu: str | None, count: int) -> Body:
    pods = _template(gpu=gpu, seconds=rng.uniform(5, 60))
    pods["spec"]["restartPolicy"] = "Never"
    return {"parallelism": count, "completions": count, "backoffLimit": 6, "template": pods}


def _object(resource: Resource, *, name: str, spec: Body, **annotations: str) -> tuple[Resource, Body]:
    metadata = {"name": name, "labels": {names.LABEL_QUEUE: "default"}, "annotations": annotations}
    return resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def batch_job(name: str, *, rng: Random) -> Made:
    """A batch Job."""
    return [_object(JOBS, name=name, spec=_job_spec(rng=rng, gpu=rng.choice(_SIZES), count=rng.randint(1, 4)))]


def job_set(name: str, *, rng: Random) -> Made:
    """A JobSet: a driver without a GPU, and workers."""
    parts = {
        "driver": _job_spec(rng=rng, gpu=None, count=1),
        "workers": _job_spec(rng=rng, gpu="1", count=rng.randint(1, 3)),
    }
    jobs = [{"name": part, "replicas": 1, "template": {"spec": spec}} for part, spec in parts.items()]
    return [_object(JOBSETS, name=name, spec={"replicatedJobs": jobs})]


def train_job(name: str, *, rng: Random) -> Made:
    """A TrainJob of the `runtime`."""
    spec = {"runtimeRef": {"name": RUNTIME}, "trainer": {"numNodes": rng.randint(1, 3), "image": "busybox"}}
    return [_object(TRAINJOBS, name=name, spec=spec, **{names.REQUEST: "1"})]


def runtime() -> Body:
    """The runtime of all TrainJobs."""
    node = _template(gpu=None, seconds=_TRAINING_SECONDS, name="node")
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    part = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"backoffLimit": 6, "template": node}}}
    return {
        "metadata": {"name": RUNTIME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [part]}}},
    }


def mpi_job(name: str, *, rng: Random) -> Made:
    """An MPIJob, whose launcher ends."""
    roles = {
        "Launcher": {"replicas": 1, "template": _template(gpu=None, seconds=rng.uniform(5, 40))},
        "Worker": {"replicas": rng.randint(1, 3), "template": _template(gpu="1")},
    }
    spec = {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles}
    return [_object(MPIJOBS, name=name, spec=spec)]


def _ray(*, workers: int, gpu: str) -> Body:
    start: Body = {"rayStartParams": {}}
    return {
        "rayVersion": "2.46.0",
        "headGroupSpec": {**start, "template": _template(gpu=None)},
        "workerGroupSpecs": [
            {
                **start, "groupName": "gpus", "replicas": workers, "minReplicas": 0, "maxReplicas": 9,
                "template": _template(gpu=gpu),
            }
        ],
    }  # fmt: skip


def ray_job(name: str, *, rng: Random) -> Made:
    """A RayJob, whose program ends as its submitter does."""
    cluster = _ray(workers=rng.randint(1, 3), gpu="1")
    spec = {"entrypoint": "python train.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}
    return [_object(RAYJOBS, name=name, spec=spec)]


def ray_cluster(name: str, *, rng: Random) -> Made:
    """A RayCluster."""
    return [_object(RAYCLUSTERS, name=name, spec=_ray(workers=rng.randint(1, 2), gpu="1"))]


def pod_group(name: str, *, rng: Random) -> Made:
    """Plain pods that start together: nothing makes them again, so no other job ends them."""
    count, gpu = rng.randint(1, 3), rng.choice(_SIZES)
    made = []
    for index in range(count):
        body = _template(gpu=gpu)
        body["metadata"]["name"] = f"{name}-{index}"
        body["metadata"]["labels"] = {names.LABEL_QUEUE: "default", names.POD_GROUP: name}
        body["metadata"]["annotations"] |= {names.POD_GROUP_SIZE: str(count), names.PREEMPTIBLE: "false"}
        body["spec"]["restartPolicy"] = "Never"
        made.append((PODS, body))
    return made


def _replicas(resource: Resource, *, more: Callable[[str], Body]) -> Maker:
    def made(name: str, *, rng: Random) -> Made:
        labels = {"app": name}
        spec = {
            "replicas": rng.randint(1, 3), "selector": {"matchLabels": labels},
            "template": _template(gpu=rng.choice(_SIZES), labels=labels), **more(name),
        }  # fmt: skip
        return [_object(resource, name=name, spec=spec)]

    return made


deployment: Final = _replicas(DEPLOYMENTS.resource, more=lambda _: {"strategy": {"type": "Recreate"}})
stateful_set: Final = _replicas(
    STATEFULSETS.resource, more=lambda name: {"serviceName": name, "podManagementPolicy": "Parallel"}
)


def leader_worker_set(name: str, *, rng: Random) -> Made:
    """A LeaderWorkerSet with replicas of two pods."""
    pods = {"size": 2, "workerTemplate": _template(gpu="0.5")}
    return [_object(LEADERWORKERSETS.resource, name=name, spec={"replicas": rng.randint(1, 2),
                                                                "leaderWorkerTemplate": pods})]  # fmt: skip


def wanted(body: Body) -> int:
    """How many pods with GPUs an object asks for that runs until it is deleted."""
    spec = body["spec"]
    if body["kind"] == RAYCLUSTERS.kind:
        return int(spec["workerGroupSpecs"][0]["replicas"])
    return int(spec["replicas"]) * int(spec.get("leaderWorkerTemplate", {}).get("size", 1))


def scaled(body: Body, *, to: int) -> Body:
    """The change of its spec after which it has another number of replicas."""
    if body["kind"] == RAYCLUSTERS.kind:
        return {"workerGroupSpecs": [{**body["spec"]["workerGroupSpecs"][0], "replicas": to}]}
    return {"replicas": to}


def selector(body: Body) -> str:
    """The label by which an object's pods are found."""
    key = {
        RAYCLUSTERS.kind: "ray.io/cluster",
        LEADERWORKERSETS.resource.kind: "leaderworkerset.sigs.k8s.io/name",
    }.get(body["kind"], "app")
    return f"{key}={body['metadata']['name']}"
