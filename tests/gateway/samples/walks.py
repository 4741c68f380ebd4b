"""Two tenants whose jobs, pods and numbers are equal, and what a gateway that samples them has to have counted.

The world keeps what happened, to the second. What an answer has to say is added up from that, not by the gateway.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.decoding import decode
from dovetail.query.right_sizes import measured_size, saved_by_accepted
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import EDIT, GatewayApiServer, User
from tests.gateway.builders import make_job

Values = dict[str, Any]
NAMESPACES: Final = ("red", "blue")
# Nodes with their models.
NODES: Final = {"a": "V100", "b": "H100", "c": "V100"}
READERS: Final = {"admin-token": NAMESPACES, "red-token": ("red",), "blue-token": ("blue",)}
JOBS: Final = ("train", "sweep", "tune")
USERS: Final = ("rita", "rob")
PROJECTS: Final = ("", "vision", "speech")
# A status has the latest attempts.
MOST_ATTEMPTS: Final = 16
GAPS: Final = (60, 90, 600, 1800, 3600)


def timestamp(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Account(NamedTuple):
    """For whom GPUs count."""

    day: str
    namespace: str
    project: str
    user: str
    model: str


@dataclass
class Pod:
    """A pod, for whom its GPUs count, and from when to when it had them. `seen` says whether a sample had it."""

    key: str
    user: str
    project: str
    # Node, index and share in thousandths of each device.
    devices: list[tuple[str, int, int]]
    start: int
    job: "Job | None" = None
    end: float | None = None
    seen: bool = False

    @property
    def namespace(self) -> str:
        return self.key.split("/")[0]


@dataclass
class Job:
    """A job. `marks` are what its status says of its runs: when, what and on which nodes."""

    key: str
    uid: str
    number: int
    user: str
    project: str
    created: int
    phase: str = "Queued"
    nodes: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    start: int | None = None
    end: int | None = None
    preempted: int | None = None
    attempts: list[Values] = field(default_factory=list)
    # How much of its devices it uses, and whether it requests its right size already.
    load: float = 0.1
    is_sized: bool = False
    # The devices of its latest run, and its object.
    devices: list[tuple[str, int, int]] = field(default_factory=list)
    made: Values = field(default_factory=dict)
    marks: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return self.key.split("/")[0]

    @property
    def name(self) -> str:
        return self.key.split("/")[1]


class World:
    """The cluster and its past. `now` is the time of the last sample."""

    def __init__(self, api: GatewayApiServer, *, rng: Random, begin: int) -> None:
        self.api = api
        self.rng = rng
        self.begin = self.now = begin
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        self.past: list[Pod] = []
        # Of each job of which a sample has seen it, by UID and mark.
        self.marks: dict[tuple[str, int, str], Values] = {}
        # When a sample saw a job's first start, and how many seconds it had waited, by namespace.
        self.starts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.was_away = False
        self._numbers = dict.fromkeys(NAMESPACES, 0)
        self._uids = 0
        self._taken = set[int]()
        api.users |= {"blue-token": User("bob", {"blue": EDIT})}
        # Also a namespace without any object is asked about.
        api.bind("red", user="rita")
        api.bind("blue", user="bob")
        for name, model in NODES.items():
            api.put("nodes", make_node(name))
            made = make_gpunode(name, gpus=4, model=model)
            for device in made["status"]["devices"]:
                device["utilization"] = self.load(name, device["index"])
            api.put("gpunodes", made)

    @staticmethod
    def load(node: str, index: int) -> float:
        """The utilization of a device."""
        return 0.1 + 0.2 * index if node == "a" else 0.9

    # --- changes ---------------------------------------------------------------------------------------------------

    def step(self) -> int:
        """Let some jobs and pods change within a time, which is returned in seconds."""
        gap = self.rng.choice(GAPS)
        for key in self.rng.sample([f"{each}/{name}" for each in NAMESPACES for name in JOBS], self.rng.randrange(4)):
            self._change(key, gap=gap)
        if self.rng.random() < 0.3:
            self._change_plain(f"{self.rng.choice(NAMESPACES)}/train-0-plain", gap=gap)
        return gap

    def _moments(self, count: int, *, gap: int) -> list[int]:
        """Seconds of this gap, at each of which something else happens."""
        free = [at for at in range(self.now + 1, self.now + gap) if at not in self._taken]
        found = sorted(self.rng.sample(free, count))
        self._taken.update(found)
        return found

    def _change(self, key: str, *, gap: int) -> None:
        job = self.jobs.get(key)
        if job is None:
            self._create(key, gap=gap)
        elif job.phase == "Queued":
            self._start(job, at=self._moments(1, gap=gap)[0])
        elif job.phase == "Succeeded" or self.rng.random() < 0.1:
            self._delete(job)
        else:
            self.rng.choice([self._end, self._preempt, self._restart])(job, gap=gap)

    def _create(self, key: str, *, gap: int) -> None:
        namespace, _ = key.split("/")
        self._numbers[namespace] += 1
        self._uids += 1
        created, start = self._moments(2, gap=gap)
        user, project = self.rng.choice(USERS), self.rng.choice(PROJECTS)
        number = self._numbers[namespace]
        job = Job(key=key, uid=f"uid-{self._uids}", number=number, user=user, project=project, created=created)
        job.load, job.is_sized = self.rng.choice([0.1, 0.4]), self.rng.random() < 0.4
        self.jobs[key] = job
        if self.rng.random() < 0.7:
            self._start(job, at=start)
        else:
            self._show(job)

    def _start(self, job: Job, *, at: int) -> None:
        job.phase, job.start = "Running", at
        job.nodes = self.rng.sample(sorted(NODES), self.rng.randrange(1, 3))
        has_moved = job.before and set(job.before) != set(job.nodes)
        job.marks.append((at, "Moved" if has_moved else "Started", tuple(job.nodes)))
        job.devices = []
        for worker, node in enumerate(job.nodes):
            pod = Pod(f"{job.key}-{worker}", job.user, job.project, self._devices(node), at, job=job)
            job.pods.append(pod)
            job.devices += pod.devices
            self._add(pod)
        self._show(job)

    def _devices(self, node: str) -> list[tuple[str, int, int]]:
        indexes = self.rng.sample(range(4), self.rng.randrange(1, 3))
        return [(node, index, self.rng.choice([1000, 500, 250])) for index in indexes]

    def _end(self, job: Job, *, gap: int) -> None:
        (at,) = self._moments(1, gap=gap)
        job.phase, job.end = "Succeeded", at
        job.marks.append((at, "Ended", tuple(job.nodes)))
        self._remove(job, at=at)
        self._show(job)

    def _preempt(self, job: Job, *, gap: int) -> None:
        (at,) = self._moments(1, gap=gap)
        self._attempt_ends(job, at=at, reason="Preempted")
        job.preempted, job.phase, job.start, job.nodes = at, "Queued", None, []
        job.devices = []
        job.marks.append((at, "Preempted", tuple(job.before)))
        self._remove(job, at=None)
        self._show(job)

    def _restart(self, job: Job, *, gap: int) -> None:
        """It fails and starts several times until the next sample, which sees none of the runs in between."""
        moments = self._moments(2 * self.rng.randrange(1, 9), gap=gap)
        for ends, starts in zip(moments[::2], moments[1::2], strict=True):
            self._attempt_ends(job, at=ends, reason="Failed")
            self._remove(job, at=None)
            self._start(job, at=starts)

    def _attempt_ends(self, job: Job, *, at: int, reason: str) -> None:
        said = {"number": len(job.attempts) + 1, "reason": reason, "message": "", "counted": False}
        times = {"startTime": timestamp(job.start or at), "endTime": timestamp(at)}
        job.attempts.append(said | times | {"nodes": job.nodes})
        job.before = job.nodes

    def _remove(self, job: Job, *, at: int | None) -> None:
        """Its pods go. Without the time of its end, they count until the middle between two samples."""
        for pod in job.pods:
            self._drop(pod, at=at)
        job.pods.clear()

    def _delete(self, job: Job) -> None:
        self._remove(job, at=None)
        del self.jobs[job.key]
        self.api.delete("gpujobs", job.key)

    def _change_plain(self, key: str, *, gap: int) -> None:
        if (pod := self.pods.get(key)) is not None:
            self._drop(pod, at=None)
            return
        (at,) = self._moments(1, gap=gap)
        devices = self._devices(self.rng.choice(sorted(NODES)))
        self._add(Pod(key, "", self.rng.choice(PROJECTS), devices, at))

    def _drop(self, pod: Pod, *, at: int | None) -> None:
        del self.pods[pod.key]
        self.api.delete("pods", pod.key)
        # -1: in the middle.
        pod.end = -1 if at is None else at

    # --- objects ---------------------------------------------------------------------------------------------------

    def _show(self, job: Job) -> None:
        status: Values = {"phase": job.phase, "number": job.number, "gpus": 1, "request": "1", "nodes": job.nodes}
        status["attempts"] = job.attempts[-MOST_ATTEMPTS:]
        times = {"startTime": job.start, "completionTime": job.end}
        status |= {name: timestamp(at) for name, at in times.items() if at is not None}
        if job.preempted is not None:
            status["preemption"] = {"count": 1, "lastTime": timestamp(job.preempted)}
        status["measured"] = {"meanUtilization": job.load, "deviceSeconds": 7200}
        status["memory"] = {"strategy": "Dynamic", "basis": "", "peakMiB": 3000}
        status["devices"] = [
            {
                "worker": 0,
                "node": node,
                "index": index,
                "uuid": f"{node}-{index}",
                "shareMilli": 1000,
                "memoryMiB": 32768,
            }
            for node, index, _ in job.devices
        ]
        sized = {"rightSize": "16G,0.5"} if job.is_sized else {}
        status["request"] = sized.get("rightSize", "1")
        made = make_job(job.name, namespace=job.namespace, user=job.user, status=status, **sized)
        made["metadata"] |= {"uid": job.uid, "creationTimestamp": timestamp(job.created)}
        made["metadata"]["labels"] = {names.LABEL_PROJECT: job.project} if job.project else {}
        job.made = made
        self.api.put("gpujobs", made)

    def _add(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.past.append(pod)
        self._uids += 1
        namespace, name = pod.key.split("/")
        held = [
            {"uuid": f"{node}-{index}", "index": index, "shareMilli": share, "memoryMiB": 1000}
            for node, index, share in pod.devices
        ]
        node = pod.devices[0][0]
        allocation = {
            "version": 1,
            "node": node,
            "mode": "Fractional",
            "job": "" if pod.job is None else pod.job.name,
            "priority": 10,
            "containers": [{"index": 0, "devices": held}],
        }
        # As webhook and Job controller write them; what a job's pod says of its user and project does not count.
        labels = {names.LABEL_PROJECT: pod.project if pod.job is None else "of-the-pod"}
        owners: list[Values] = []
        if pod.job is not None:
            labels |= {names.LABEL_JOB: pod.job.name, names.LABEL_JOB_NUMBER: str(pod.job.number)}
            owners.append({"apiVersion": "batch/v1", "kind": "Job", "name": pod.job.name, "uid": pod.job.uid})
            owners[0]["controller"] = True
        begins = timestamp(pod.start)
        milli = str(sum(share for _, _, share in pod.devices))
        self.api.put(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"pod-{self._uids}",
                    "creationTimestamp": begins,
                    "annotations": {
                        names.REQUEST: "1",
                        names.ALLOCATION: json.dumps(allocation),
                        names.USER: self.rng.choice(USERS),
                    },
                    "labels": labels,
                    "ownerReferences": owners,
                },
                "spec": {
                    "nodeName": node,
                    "schedulerName": names.SCHEDULER_NAME,
                    "containers": [{"name": "main", "resources": {"limits": {names.GPU_MILLI: milli}}}],
                },
                "status": {"phase": "Running"} | ({"startTime": begins} if self.rng.random() < 0.5 else {}),
            },
        )

    # --- what has to be counted --------------------------------------------------------------------------------------

    def sampled(self, at: int) -> None:
        """A sample was taken at this time: what it cannot know exactly ends in the middle of the two samples."""
        for pod in self.past:
            if pod.end == -1:
                pod.end = (self.now + at) / 2
            if pod.end is not None and self.now < pod.end <= at and self.was_away:
                # The gateway began again at the last sample, and does not know what was held then.
                pod.end = self.now
            pod.seen |= pod.end is None
        for job in self.jobs.values():
            first = min((when for when, kind, _ in job.marks if kind == "Started"), default=0)
            if first > self.now > 0 and at > self.begin and not job.attempts and job.start == first:
                self.starts[job.namespace].append((at, first - job.created))
            for when, kind, nodes in job.marks:
                self.marks[job.uid, when, kind] = {
                    "at": timestamp(when), "kind": kind, "namespace": job.namespace, "job": job.name,
                    "number": job.number, "nodes": list(nodes),
                }  # fmt: skip
        self.now, self.was_away = at, False

    def accounts(self) -> dict[Account, list[float]]:
        """For whom GPUs count on each day: their hours, those at work, those that a right size saves or has saved."""
        found: dict[Account, list[float]] = defaultdict(lambda: [0.0] * 4)
        for pod in self.past:
            for node, index, share in pod.devices if pod.seen else ():
                for day, seconds in _days(max(self.begin, pod.start), self.now if pod.end is None else pod.end):
                    hours = found[Account(day, pod.namespace, pod.project, pod.user, NODES[node])]
                    hours[0] += seconds * share / 1000 / 3600
                    hours[1] += seconds * share / 1000 / 3600 * self.load(node, index)
        for job in self.jobs.values():
            made = decode(json.dumps(job.made), as_type=GPUJob)
            size = measured_size(made, now=datetime.fromtimestamp(self.now, UTC))
            saves = 0.0 if size is None else size.saved_gpus, saved_by_accepted(made)
            for node, _, _ in job.devices if job.start is not None else ():
                # A job's devices save the same, over its latest run; what was never sampled is not shown.
                for day, seconds in _days(job.start or 0, self.now if job.end is None else job.end):
                    account = Account(day, job.namespace, job.project, job.user, NODES[node])
                    for at, gpus in enumerate(saves, start=2):
                        if account in found:
                            found[account][at] += seconds / 3600 * gpus / len(job.devices)
        return found

    def hours(self, by: str, *, sees: tuple[str, ...], namespace: str | None = None) -> dict[str, list[float]]:
        """The same by group."""
        found: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
        for account, hours in self.accounts().items():
            if account.namespace in sees and namespace in {None, account.namespace}:
                group = getattr(account, by.lower())
                found[group] = [before + more for before, more in zip(found[group], hours, strict=True)]
        return {group: hours for group, hours in found.items() if hours[0]}

    def held(self, concerns: Callable[[Pod], bool]) -> float:
        """The GPUs that pods hold now."""
        return sum(share / 1000 for pod in self.pods.values() if concerns(pod) for _, _, share in pod.devices)

    def count(self, phase: str, concerns: Callable[[Job], bool]) -> int:
        return sum(job.phase == phase and concerns(job) for job in self.jobs.values())


def _days(begin: float, end: float) -> Iterator[tuple[str, float]]:
    """The seconds of each day between two times."""
    while begin < end:
        day = datetime.fromtimestamp(begin, UTC).date()
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC).timestamp()
        yield day.isoformat(), min(end, midnight) - begin
        begin = midnight
