"""Submits the jobs, follows them to their end, and removes those that have ended."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.meta import EventType
from dovetail.api.resources import GPUJOBS, PODS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.kube.reflector import Reflector
from tools.soak.guest_kinds import Body, scaled, selector, wanted
from tools.soak.job_kinds import GUARANTEED, OWNER, RUN_AGAIN, Drawn, JobKind, draw, gpus_of
from tools.soak.record import JobRecord

# How long a job that has ended stays, a job runs before it is cancelled or released, and a group of pods runs.
_KEPT_SECONDS: Final = 30.0
_ACT_SECONDS: Final = 3.0
_GROUP_SECONDS: Final = 20.0
_RETRY_SECONDS: Final = 1.0
# The replicas that an object which runs until it is deleted asks for, one after the other.
_SCALES: Final = (3, 0, 1)


class Load:
    """The jobs of one soak."""

    def __init__(self, client: Client, *, seed: int, now: Callable[[], float]) -> None:
        self.records: dict[str, JobRecord] = {}
        self._client = client
        self._rng = Random(seed)
        self._now = now
        self._drawn: dict[str, Drawn] = {}
        self._removed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_ended = asyncio.Event()

    @property
    def unfinished(self) -> int:
        """Number of jobs that have not ended."""
        return sum(record.ended is None for record in self.records.values())

    async def follow(self) -> None:
        """Follow the jobs until it is cancelled."""
        await Reflector(self._client, resource=GPUJOBS, as_type=GPUJob, on_event=self._on_event).run()

    async def submit(self, *, seconds: float, per_second: float, most: int) -> None:
        """Submit jobs for that long, at this rate, while fewer than `most` have not ended."""
        while self._now() < seconds:
            if self.unfinished < most:
                await self._submit_one()
            await asyncio.sleep(self._rng.expovariate(per_second))

    async def wait_ended(self, *, seconds: float) -> None:
        """Return when all jobs have ended, or after that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_ended.wait()

    async def _submit_one(self) -> None:
        drawn = draw(len(self.records), rng=self._rng)
        kind, name = drawn.kind, drawn.record
        guaranteed = gpus_of(drawn) if kind.namespace == OWNER else 0
        await self._until_guaranteed(guaranteed)
        self._drawn[name] = drawn
        self._all_ended.clear()
        # First, since its first event may come before the answer.
        self.records[name] = record = JobRecord(name=name, kind=kind.name, submitted=self._now(), guaranteed=guaranteed)
        for resource, body in drawn.objects:
            await self._create(resource, body=body, record=record)
        match kind.act:
            case "cancel" | "release":
                self._later(self._act(name, kind=kind))
            case "scale":
                self._later(self._scale(drawn, record=record))

    async def _create(self, resource: Resource, *, body: Body, record: JobRecord) -> None:
        namespace = self._drawn[record.name].kind.namespace
        while True:
            try:
                await self._client.create(resource, body=body, as_type=Body, namespace=namespace)
            except AlreadyExists:
                return
            except (KubeError, OSError):
                # The API server is away, or the webhook: a user types it again.
                await asyncio.sleep(_RETRY_SECONDS)
                record.submitted = self._now()
            else:
                return

    async def _until_guaranteed(self, gpus: int) -> None:
        """Return when the owner wants no more with these than it is guaranteed."""
        while True:
            wanted = sum(record.guaranteed for record in self.records.values() if record.ended is None)
            if wanted + gpus <= GUARANTEED[OWNER]:
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _act(self, name: str, *, kind: JobKind) -> None:
        await asyncio.sleep(_ACT_SECONDS)
        spec = {"cancel": True} if kind.act == "cancel" else {"suspend": False}
        await self._patiently(lambda: self._client.patch(
            GPUJOBS, name=name, patch={"spec": spec}, as_type=GPUJob, namespace=kind.namespace
        ))  # fmt: skip

    async def _end(self, drawn: Drawn) -> None:
        """End the pods of a group well, as kubelet does once their containers have."""
        await asyncio.sleep(_GROUP_SECONDS)
        for resource, body in drawn.objects:
            patch = partial(
                self._client.patch, resource, name=body["metadata"]["name"], patch={"status": {"phase": "Succeeded"}},
                as_type=Body, namespace=drawn.kind.namespace, subresource="status",
            )  # fmt: skip
            await self._patiently(patch)

    async def _scale(self, drawn: Drawn, *, record: JobRecord) -> None:
        """Let it ask for more and for fewer pods, each time once those are there that it asks for, and delete it."""
        ((resource, body),) = drawn.objects
        name, namespace, pods = body["metadata"]["name"], drawn.kind.namespace, selector(body)
        await self._until_running(wanted(body), pods=pods, namespace=namespace)
        record.started = self._now()
        for to in _SCALES:
            await self._patiently(partial(self._ask_for, to, resource=resource, name=name, namespace=namespace))
            count = wanted({**body, "spec": {**body["spec"], **scaled(body, to=to)}})
            await self._until_running(count, pods=pods, namespace=namespace)
        await self._patiently(partial(self._client.delete, resource, name=name, namespace=namespace))
        await self._until_running(0, pods=pods, namespace=namespace)
        record.ended, record.phase = self._now(), "Deleted"
        self._tell_ended()

    async def _ask_for(self, replicas: int, *, resource: Resource, name: str, namespace: str) -> None:
        # Of what is there now: the webhook has added the gate to its templates.
        found = await self._client.get(resource, name=name, as_type=Body, namespace=namespace)
        patch = {"spec": scaled({**found, "kind": resource.kind}, to=replicas)}
        await self._client.patch(resource, name=name, patch=patch, as_type=Body, namespace=namespace)

    async def _until_running(self, count: int, *, pods: str, namespace: str) -> None:
        """Return when so many of these pods have GPUs and run, and there are no others."""
        while True:
            with suppress(KubeError, OSError):
                found, _ = await self._client.list(PODS, as_type=Pod, namespace=namespace, label_selector=pods)
                own = [pod for pod in found if names.REQUEST in pod.metadata.annotations]
                if len(own) == count and all(pod.status.phase == "Running" for pod in own):
                    return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _remove(self, name: str) -> None:
        await asyncio.sleep(_KEPT_SECONDS)
        self._removed.add(name)
        drawn = self._drawn[name]
        for resource, body in drawn.objects:
            where = {"name": body["metadata"]["name"], "namespace": drawn.kind.namespace}
            await self._patiently(partial(self._client.delete, resource, **where))

    async def _patiently(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        while True:
            try:
                await call()
            except NotFound:
                return
            except (KubeError, OSError):
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_event(self, event: EventType, job: GPUJob) -> None:
        name = job.metadata.name
        record = self.records.get(name)
        if record is None:
            return  # a task of an array: its array counts
        if event == "DELETED":
            if name not in self._removed:
                record.wrong = f"disappeared in phase {job.status.phase}"
            return
        if job.status.phase and record.answered is None:
            record.answered = self._now()
        if record.started is None and (job.status.phase == "Running" or is_finished(job)):
            record.started = self._now()
            if self._drawn[name].kind.act == "end":
                self._later(self._end(self._drawn[name]))
        if is_finished(job) and record.ended is None:
            self._ended(job, record=record)

    def _ended(self, job: GPUJob, *, record: JobRecord) -> None:
        kind, phase = self._drawn[record.name].kind, str(job.status.phase)
        record.ended, record.phase = self._now(), phase
        record.attempts = [attempt.reason for attempt in job.status.attempts]
        record.preempted = job.status.preemption.count if job.status.preemption is not None else 0
        if phase not in kind.ends:
            record.wrong = f"ended as {phase}: {job.status.message}"
        elif record.attempts and kind.name not in RUN_AGAIN:
            record.wrong = f"ran again after {', '.join(record.attempts)}"
        self._later(self._remove(record.name))
        self._tell_ended()

    def _tell_ended(self) -> None:
        if not self.unfinished:
            self._all_ended.set()
