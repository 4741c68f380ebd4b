"""Objects of every kind, and what each kind's controller does with them, in few words.

Written from the kinds' own documentation, not from Dovetail's adapters: how many pods an object asks for, of which
templates, and which field suspends it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dovetail import names
from tests.world.api import Values

MILLI: Final = {"1": 1000, "2": 2000, "0.5": 500}


@dataclass(frozen=True, kw_only=True)
class Part:
    """Pods of one template, `count` at a time. `once`: a pod that has succeeded is not followed by another one."""

    role: str
    template: Values
    count: int
    once: bool = False


def template(gpu: str | None) -> Values:
    """A pod template as the webhook has completed it, but for the queue."""
    annotations = {} if gpu is None else {names.REQUEST: gpu}
    limits = {} if gpu is None else {names.GPU_MILLI: str(MILLI[gpu])}
    container = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    return {"metadata": {"labels": {}, "annotations": annotations}, "spec": {"containers": [container]}}


@dataclass(frozen=True, kw_only=True)
class KindOfWork:
    """One kind. `path` is the way to the field that suspends its objects; empty for a kind without one."""

    kind: str
    plural: str
    api_version: str
    path: tuple[str, ...] = ()

    def spec(self, gpu: str, *, count: int) -> Values:
        """The spec of an object with so many pods with GPUs."""
        pods: Values = template(gpu)
        match self.kind:
            case "Job":
                return {"parallelism": count, "completions": 50, "template": pods}
            case "JobSet":
                job = {"spec": {"parallelism": count, "completions": 50, "template": pods}}
                return {"replicatedJobs": [{"name": "w", "replicas": 1, "template": job}]}
            case "RayCluster":
                return _ray(pods, count=count)
            case "RayJob":
                return {"shutdownAfterJobFinishes": True, "rayClusterSpec": _ray(pods, count=count)}
            case "TrainJob":
                return {"runtimeRef": {"name": "r"}, "trainer": {"numNodes": count}, "gpu": gpu}
            case "MPIJob":
                roles = {
                    "Launcher": {"replicas": 1, "template": template(None)},
                    "Worker": {"replicas": count, "template": pods},
                }
                return {"runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles}
            case "LeaderWorkerSet":
                return {"replicas": count, "leaderWorkerTemplate": {"size": 1, "workerTemplate": pods}}
            case _:
                return {"replicas": count, "template": pods}

    def scale(self, spec: Values, *, to: int) -> None:
        """Ask for another number of pods."""
        match self.kind:
            case "Job":
                spec["parallelism"] = to
            case "JobSet":
                spec["replicatedJobs"][0]["template"]["spec"]["parallelism"] = to
            case "RayCluster":
                spec["workerGroupSpecs"][0]["replicas"] = to
            case "RayJob":
                spec["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] = to
            case "TrainJob":
                spec["trainer"]["numNodes"] = to
            case "MPIJob":
                spec["mpiReplicaSpecs"]["Worker"]["replicas"] = to
            case _:
                spec["replicas"] = to

    def parts(self, spec: Values) -> Iterator[Part]:
        """The pods that its controller keeps."""
        match self.kind:
            case "Job":
                yield Part(role="w", template=spec["template"], count=spec["parallelism"])
            case "JobSet":
                job = spec["replicatedJobs"][0]["template"]["spec"]
                yield Part(role="w", template=job["template"], count=job["parallelism"])
            case "RayCluster":
                yield from _parts_of_ray(spec)
            case "RayJob":
                yield from _parts_of_ray(spec["rayClusterSpec"])
            case "TrainJob":
                pass  # Its JobSet has them.
            case "MPIJob":
                for role, each in spec["mpiReplicaSpecs"].items():
                    yield Part(role=role.lower(), template=each["template"], count=each["replicas"])
            case "LeaderWorkerSet":
                yield Part(role="w", template=spec["leaderWorkerTemplate"]["workerTemplate"], count=spec["replicas"])
            case _:
                yield Part(role="w", template=spec["template"], count=spec["replicas"])

    def retemplate(self, spec: Values, *, gpu: str) -> None:
        """Change the request of its pods that come from now on."""
        if self.kind == "TrainJob":
            return
        for part in self.parts(spec):
            if part.template["metadata"]["annotations"].get(names.REQUEST):
                other = template(gpu)
                part.template["metadata"]["annotations"][names.REQUEST] = gpu
                part.template["spec"]["containers"] = other["spec"]["containers"]

    def is_suspended(self, spec: Values) -> bool:
        found: Any = spec
        for step in self.path:
            found = found.get(step, {}) if isinstance(found, dict) else {}
        return found is True


def _ray(pods: Values, *, count: int) -> Values:
    group = {"groupName": "g", "replicas": count, "minReplicas": 0, "maxReplicas": 99, "template": pods}
    return {"headGroupSpec": {"template": template(None)}, "workerGroupSpecs": [group]}


def _parts_of_ray(spec: Values) -> Iterator[Part]:
    yield Part(role="head", template=spec["headGroupSpec"]["template"], count=1)
    group = spec["workerGroupSpecs"][0]
    yield Part(role="w", template=group["template"], count=group["replicas"])


_SUSPEND: Final = ("suspend",)
KINDS: Final = {
    each.kind: each
    for each in (
        KindOfWork(kind="Job", plural="jobs", api_version="batch/v1", path=_SUSPEND),
        KindOfWork(kind="JobSet", plural="jobsets", api_version="jobset.x-k8s.io/v1alpha2", path=_SUSPEND),
        KindOfWork(kind="RayCluster", plural="rayclusters", api_version="ray.io/v1", path=_SUSPEND),
        KindOfWork(kind="RayJob", plural="rayjobs", api_version="ray.io/v1", path=_SUSPEND),
        KindOfWork(
            kind="TrainJob", plural="trainjobs", api_version="trainer.kubeflow.org/v1alpha1", path=_SUSPEND
        ),
        KindOfWork(
            kind="MPIJob", plural="mpijobs", api_version="kubeflow.org/v2beta1", path=("runPolicy", "suspend")
        ),
        KindOfWork(kind="Deployment", plural="deployments", api_version="apps/v1"),
        KindOfWork(kind="StatefulSet", plural="statefulsets", api_version="apps/v1"),
        KindOfWork(
            kind="LeaderWorkerSet", plural="leaderworkersets", api_version="leaderworkerset.x-k8s.io/v1"
        ),
    )
}  # fmt: skip
# Plain pods that start together; nothing makes them again.
GROUP: Final = "PodGroup"
# Plain pods that an object of Kubernetes' own API starts together, all but one of them if there are several.
GANG: Final = "Gang"
GROUPS: Final = (GROUP, GANG)


def least_of(count: int) -> int:
    """How many pods of a gang of so many start together."""
    return max(1, count - 1)
