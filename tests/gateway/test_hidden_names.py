"""The queue decides on a cluster whose other names are hidden as on the real one, and says none of them.

Clusters are drawn: users, projects, groups and names of jobs occur in the reader's namespace, in hidden ones, or in
both, and limits are so small that each of them decides something.
"""

import json
from random import Random
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.decoding import decode
from dovetail.query.dry_run import dry_run_on, prepare
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.other_names import OtherNames, reader_of
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.canary.expected import differences
from tests.gateway.canary.test_decisions import decided
from tests.gateway.served import NOW
from tests.seeds import seeds

Values = dict[str, Any]
OWN: Final = "red"
# What no answer to the reader may contain.
HIDDEN: Final = "secret"
NAMESPACES: Final = (OWN, "secret-one", "secret-two")
SEES: Final = Visibility(frozenset({OWN}))
READER: Final = "rita"
DEVICES: Final = 8
ASKED: Final[list[Values]] = [
    {"gpu": 1},
    {"gpu": 2, "priority": 30},
    {"gpu": "0.5", "workers": 2, "group": "both", "maxConcurrent": 1},
    {"gpu": 4, "activeDeadlineSeconds": 1800},
    {"gpu": 1, "onNoGpu": "Run"},
]


class Drawn:
    """A cluster, and the free devices that are left in it."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.free = [("a", at) for at in range(DEVICES // 2)] + [("b", at) for at in range(DEVICES // 2)]
        rng.shuffle(self.free)
        self.jobs: list[Values] = []
        self.pods: list[Values] = []
        for at, namespace in enumerate((OWN, *rng.choices(NAMESPACES, k=2))):
            self._add_plain(at, namespace=namespace)
        for at in range(14):
            self._add_job(at, namespace=rng.choice(NAMESPACES))
        self.quotas = [self._quota(at) for at in range(4)]
        # Of plain pods alone, and smaller than most requests.
        plain = {"projects": ["own-plain-project", f"{HIDDEN}-plain-project"], "limit": {"gpus": 1}}
        self.quotas.append({"metadata": {"name": "own-quota-of-plain-pods", "uid": "quota-plain"}, "spec": plain})

    def word(self, kind: str, namespace: str) -> str:
        """A name that the reader's namespace has alone, or others have too, or hidden ones alone."""
        return self.rng.choice([f"own-{kind}" if namespace == OWN else f"{HIDDEN}-{kind}", "both"])

    def _add_job(self, at: int, *, namespace: str) -> None:
        rng = self.rng
        spec: Values = {"gpu": rng.choice([1, 1, 2]), "priority": rng.choice([10, 20])}
        if rng.random() < 0.5:
            spec |= {"group": self.word("group", namespace), "maxConcurrent": 1}
        if rng.random() < 0.5:
            spec["activeDeadlineSeconds"] = rng.choice([3600, 36000])
        phase = rng.choice(["Queued", "Running", "Running", "Succeeded"])
        count = spec["gpu"]
        if phase == "Running" and len(self.free) < count:
            phase = "Queued"
        begins = f"2026-11-01T{at % 10:02}:00:00Z"
        status: Values = {"phase": phase, "number": at + 1, "gpus": count, "request": str(count)}
        name = f"{self.word('job', namespace)}-{at}"
        job = make_job(name, namespace=namespace, user=rng.choice([READER, self.word("user", namespace)]), **spec)
        job["metadata"] |= {"creationTimestamp": begins, "resourceVersion": "1"}
        job["metadata"]["labels"] = {names.LABEL_PROJECT: self.word("project", namespace)}
        if rng.random() < 0.7:
            job["metadata"]["generateName"] = f"{self.word('run', namespace)}-"
        if phase == "Running":
            held = [self.free.pop() for _ in range(count)]
            held = [each for each in held if each[0] == held[0][0]] if count > 1 else held
            status |= {"startTime": begins, "admittedTime": begins, "nodes": [held[0][0]]}
            status["devices"] = [_device(*each) for each in held]
            self._add_pod(f"{name}-0", held, namespace=namespace, job=job, number=at + 1)
        if phase == "Succeeded":
            status |= {
                "startTime": begins,
                "completionTime": begins.replace(":00:00", f":{rng.randrange(1, 59):02}:00"),
            }
        job["status"] = status
        self.jobs.append(job)

    def _add_pod(
        self, name: str, held: list[tuple[str, int]], *, namespace: str, job: Values | None, number: int
    ) -> None:
        node = held[0][0]
        of = "" if job is None else job["metadata"]["name"]
        pod = make_bound_pod(name, namespace=namespace, job=of, number=number, device=f"{node}-{held[0][1]}", node=node)
        allocation = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])
        allocation["containers"][0]["devices"] = [
            {"uuid": f"{node}-{index}", "index": index, "shareMilli": 1000, "memoryMiB": 32768} for _, index in held
        ]
        pod["metadata"]["annotations"][names.ALLOCATION] = json.dumps(allocation)
        if job is None:
            pod["metadata"]["ownerReferences"] = []
            pod["metadata"]["labels"] = {names.LABEL_PROJECT: self.word("plain-project", namespace)}
        else:
            pod["metadata"]["labels"] |= {names.LABEL_PROJECT: job["metadata"]["labels"][names.LABEL_PROJECT]}
        self.pods.append(pod)

    def _add_plain(self, at: int, *, namespace: str) -> None:
        if self.free:
            self._add_pod(f"plain-{at}", [self.free.pop()], namespace=namespace, job=None, number=0)

    def _quota(self, at: int) -> Values:
        rng = self.rng
        spec: Values = {"limit": rng.choice([{"gpus": rng.randrange(1, 6)}, {"runningJobs": rng.randrange(1, 5)}])}
        kinds = {
            "namespaces": [*NAMESPACES],
            "users": [READER, "both", "own-user", f"{HIDDEN}-user"],
            "projects": ["both", "own-project", f"{HIDDEN}-project", "own-plain-project", f"{HIDDEN}-plain-project"],
        }
        for kind, values in kinds.items():
            if rng.random() < 0.5:
                spec[kind] = rng.sample(values, rng.randrange(1, len(values)))
        if rng.random() < 0.4:
            spec["per"] = rng.choice(["User", "Namespace"])
        hides = OWN not in spec.get("namespaces", [OWN])
        return {"metadata": {"name": f"{HIDDEN if hides else 'own'}-quota-{at}", "uid": f"quota-{at}"}, "spec": spec}

    def objects(self) -> ClusterObjects:
        def read(found: list[Values], as_type: type[Any]) -> list[Any]:
            return [decode(json.dumps(each), as_type=as_type) for each in found]

        settings = Settings(
            namespace_time_limits={OWN: 7200, f"{HIDDEN}-one": self.rng.choice([600, 86_400])},
            namespace_cpu_fallback={f"{HIDDEN}-two": 60},
        )
        return ClusterObjects(
            nodes=read([make_node(name) for name in ("a", "b")], Node),
            gpunodes=read([make_gpunode(name, gpus=DEVICES // 2) for name in ("a", "b")], GPUNode),
            pods=read(self.pods, Pod),
            jobs=read(self.jobs, GPUJob),
            quotas=read(self.quotas, GPUQuota),
            settings=settings,
        )


def _device(node: str, index: int) -> Values:
    return {
        "worker": 0, "node": node, "index": index, "uuid": f"{node}-{index}", "shareMilli": 1000, "memoryMiB": 32768,
    }  # fmt: skip


def answer(objects: ClusterObjects, spec: Values, *, project: str, **options: Any) -> Any:
    """What the queue decides on the reader's job, whose project the reader sees elsewhere too."""
    job = make_job("asked", namespace=OWN, user=READER, status={"phase": "Queued"}, **spec)
    job["metadata"]["labels"] = {names.LABEL_PROJECT: project} if project else {}
    asked = decode(json.dumps(job), as_type=GPUJob)
    return msgspec.to_builtins(dry_run_on(prepare(objects, now=NOW), job=asked, most_cycles=200, **options))


@seeds(16)
def test_what_is_decided_without_the_names_of_others_is_what_is_decided(seed: int) -> None:
    objects = Drawn(Random(seed)).objects()
    others = OtherNames(
        sees=SEES, jobs=objects.jobs, pods=objects.pods, users=[READER], secret=seed.to_bytes(32, "big")
    )
    seen = [each.metadata for each in (*objects.jobs, *objects.pods) if each.metadata.namespace == OWN]
    projects = sorted({meta.labels[names.LABEL_PROJECT] for meta in seen})
    for at, spec in enumerate(ASKED):
        project = ["", *reversed(projects)][at % (len(projects) + 1)]
        real = answer(objects, spec, project=project)
        found = answer(others.cluster(objects), spec, project=project, reader=reader_of(SEES))
        assert HIDDEN not in json.dumps(found), spec
        wrong = differences(decided(found, namespace=OWN), decided(real, namespace=OWN), at=str(spec))
        assert not wrong, "\n".join(wrong)
