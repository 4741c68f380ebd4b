"""v2: start, list and cancel tasks. A task is a GPUJob from a template, written as the caller."""

import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.answers.v2 import Kind, Started, State, Task, TaskList
from dovetail.api.access_reviews import Act
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import sentence_from
from dovetail.api.resources import GPUJOBS
from dovetail.config.errors import ConfigError
from dovetail.decoding import UnreadableError, convert
from dovetail.gpu.device_indexes import NodeDevice
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import request_of_job
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.numbers import whole
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.v2.devices import Devices, devices_of
from dovetail_gateway.v2.templates import LABEL, TemplateFile, Templates, as_job
from dovetail_gateway.v2.types import KINDS, InferenceFields, TaskFilter, TaskPath, TrainingFields
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.permissions import require

WAIT_SECONDS: Final = 1.0
_FIELDS: Final[Mapping[Kind, type[msgspec.Struct]]] = {"training": TrainingFields, "inference": InferenceFields}
_PREFIX: Final[Mapping[Kind, str]] = {"training": "train", "inference": "infer"}
_STATES: Final[Mapping[str, State]] = {
    "Running": "running",
    "Succeeded": "completed",
    "Failed": "failed",
    "TimedOut": "failed",
    "Cancelled": "cancelled",
}
_ON_CPU: Final = "this cluster has no GPU: the task runs on the CPU"
_MOST_IDLE: Final = 3
# The outcomes of a dry run in which waiting changes nothing.
_NEVER: Final = frozenset({"Never", "Invalid"})


class Tasks:
    """The handlers of tasks; `namespace` is where they are. A start waits `wait_seconds` for its device."""

    def __init__(
        self,
        cache: ClusterCache,
        *,
        clients: Clients,
        reviews: Reviews,
        answers: Answers,
        templates: TemplateFile,
        namespace: str,
        wait_seconds: float,
    ) -> None:
        self._cache = cache
        self._clients = clients
        self._reviews = reviews
        self._answers = answers
        self._templates = templates
        self._namespace = namespace
        self._wait_seconds = wait_seconds

    async def start_training(self, call: Call[Nothing, Nothing, dict[str, Any]]) -> Answer:
        """Start a training task."""
        return await self._start("training", caller=call.caller, body=call.body)

    async def start_inference(self, call: Call[Nothing, Nothing, dict[str, Any]]) -> Answer:
        """Start an inference task."""
        return await self._start("inference", caller=call.caller, body=call.body)

    async def list_tasks(self, call: Call[Nothing, TaskFilter, Any]) -> Answer:
        """A page of the tasks that the caller may list, by id."""
        wanted, devices = call.query, self._devices()
        rows = {task.task_id: task for job in self._seen(call.sees) if (task := task_of(job, devices=devices))}
        ids = sorted(id_ for id_, task in rows.items() if _matches(task, wanted=wanted))
        chosen, after = page(ids, cursor=wanted.cursor, limit=wanted.limit)
        return Answer(value=TaskList(tasks=[rows[id_] for id_ in chosen], total=len(ids), next=after))

    async def get_task(self, call: Call[TaskPath, Nothing, Any]) -> Answer:
        """One task."""
        found = next((job for job in self._seen(call.sees) if job.metadata.name == call.path.id), None)
        task = None if found is None else task_of(found, devices=self._devices())
        if task is None:
            raise _no_task(call.path.id)
        return Answer(value=task)

    async def cancel_task(self, call: Call[TaskPath, Nothing, Any]) -> Answer:
        """Cancel a task as the caller, and wait shortly for its end. Idempotent: what has ended stays as it is."""
        name = call.path.id
        async with self._clients.client_for(call.caller) as client:
            job = await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=self._namespace)
            if kind_of(job) is None:
                raise _no_task(name)
            if not job.spec.cancel and job.status.phase not in FINISHED:
                job = await client.patch(
                    GPUJOBS, name=name, patch={"spec": {"cancel": True}}, as_type=GPUJob, namespace=self._namespace
                )
        if job.spec.cancel and job.status.phase not in FINISHED:
            key = f"{self._namespace}/{name}"
            job = await self._cache.until(key, holds=_has_ended, seconds=self._wait_seconds) or job
        return Answer(value=task_of(job, devices=self._devices()))

    async def _start(self, kind: Kind, *, caller: Caller, body: dict[str, Any]) -> Answer:
        await require(self._reviews, caller=caller, act=Act(verb="create", namespace=self._namespace))
        asked, templates = _device_of(kind, body=body), self._now()
        device = self._device(asked)
        spec = templates.spec(kind, device=device, fields=body | {"device": _inside(device)})
        await self._check(spec, caller=caller)
        name = f"{_PREFIX[kind]}-{secrets.token_hex(5)}"
        annotations = {names.TASK_DEVICE: asked}
        manifest = {"metadata": {"name": name, "labels": {LABEL: kind}, "annotations": annotations}, "spec": spec}
        async with self._clients.client_for(caller) as client:
            created = await client.create(
                GPUJOBS, body=manifest, as_type=GPUJob, namespace=self._namespace, strict=True
            )
        key = f"{self._namespace}/{name}"
        job = await self._cache.until(key, holds=_has_place, seconds=self._wait_seconds) or created
        devices = self._devices()
        why = "" if job.status.devices else _message(job, devices=devices)
        return Answer(
            value=Started(task_id=name, status=_state(job), device=_device_name(job, devices=devices), message=why)
        )

    def _now(self) -> Templates:
        """The templates as they are now. Raises `RequestFailedError`."""
        try:
            return self._templates.read()
        except ConfigError as error:
            raise RequestFailedError(
                503, reason="NoTaskTemplate", sentence=says.TEMPLATES_UNREADABLE(problem=str(error))
            ) from error

    def _device(self, text: str) -> str:
        """`spec.resources.device` of a request's device. Raises `RequestFailedError`."""
        devices = self._devices()
        if text == "cuda" and not any(node.uses for node in self._cache.node_uses()):
            return "cpu"
        return text if text in {"cpu", "cuda"} else str(devices.named(text).at)

    async def _check(self, spec: Mapping[str, Any], *, caller: Caller) -> None:
        """Raise `RequestFailedError` for a task that could never start, such as one with too much memory."""
        try:
            asked = as_job(spec, namespace=self._namespace)
        except UnreadableError as error:
            raise RequestFailedError(
                422, reason="Invalid", sentence=says.VALUE_REFUSED(problem=error.problem)
            ) from error
        who = await self._reviews.who(caller)
        found = await self._answers.dry_run(
            asked, who=who, sees=await self._cache.seen_by(caller, named=[self._namespace])
        )
        if found.outcome in _NEVER:
            raise RequestFailedError(409, reason=found.reason or "Invalid", sentence=sentence_from(found))

    def _devices(self) -> Devices:
        return devices_of(self._cache.node_uses(), indexes=self._cache.device_indexes)

    def _seen(self, sees: Visibility) -> list[GPUJob]:
        """The jobs of the tasks' namespace, if the caller may list them."""
        if not sees.sees(self._namespace):
            return []
        return [job for job in self._cache.jobs.values() if job.metadata.namespace == self._namespace]


def kind_of(job: GPUJob) -> Kind | None:
    """Which kind of task a job is; None if it is none."""
    return next((kind for kind in KINDS if job.metadata.labels.get(LABEL) == kind), None)


def task_of(job: GPUJob, *, devices: Devices) -> Task | None:
    """The job as a task; None if it is none."""
    kind, status = kind_of(job), job.status
    if kind is None:
        return None
    return Task(
        task_id=job.metadata.name,
        type=kind,
        status=_state(job),
        device=_device_name(job, devices=devices),
        node=status.nodes[0] if status.nodes else None,
        message=_message(job, devices=devices),
        created_at=job.metadata.creation_timestamp,
        started_at=status.start_time,
        finished_at=status.completion_time,
    )


def _device_of(kind: Kind, *, body: dict[str, Any]) -> str:
    """The device of a request, whose known fields are checked. Raises `RequestFailedError`."""
    try:
        known = convert(whole(body), as_type=_FIELDS[kind])
    except UnreadableError as error:
        raise RequestFailedError(
            422, reason="Invalid", sentence=says.REQUEST_UNREADABLE(problem=error.problem)
        ) from error
    assert isinstance(known, TrainingFields | InferenceFields)
    return known.device


def _inside(device: str) -> str:
    """The device as the task's container counts: it sees one GPU, or none."""
    return "cpu" if device == "cpu" else "cuda:0"


def _matches(task: Task, *, wanted: TaskFilter) -> bool:
    return wanted.status in {None, task.status} and wanted.type in {None, task.type}


def _state(job: GPUJob) -> State:
    """The state; of a cancelled task without a program that still runs, `cancelled` before its status says so."""
    otherwise: State = "cancelled" if job.spec.cancel else "pending"
    return _STATES.get(job.status.phase or "", otherwise)


def _has_place(job: GPUJob | None) -> bool:
    return job is not None and (bool(job.status.devices) or job.status.phase in {"Running", *FINISHED})


def _has_ended(job: GPUJob | None) -> bool:
    return job is None or job.status.phase in FINISHED


def _idle_instead(job: GPUJob, *, devices: Devices) -> str:
    """Which devices are idle while the job waits for the one that it names; empty if none is, or it names none."""
    try:
        request = request_of_job(job)
    except RequestError:
        return ""
    if request is None or request.device_index is None or job.status.devices or job.status.phase in _STATES:
        return ""
    idle = [each.name for each in devices if each.idle]
    if not idle:
        return ""
    more = f" and {len(idle) - _MOST_IDLE} more" if len(idle) > _MOST_IDLE else ""
    return f"{', '.join(idle[:_MOST_IDLE])}{more} {'is' if len(idle) == 1 else 'are'} idle"


def _message(job: GPUJob, *, devices: Devices) -> str:
    """What the job's status says, and which device it could have instead.

    Of an unfinished task for which the cluster had no GPU, just that.
    """
    asked = job.metadata.annotations.get(names.TASK_DEVICE)
    without_gpu = asked == "cuda" and job.spec.resources is not None and job.spec.resources.device == "cpu"
    if without_gpu and job.status.phase not in FINISHED:
        return _ON_CPU
    return "; ".join(filter(None, (job.status.message, _idle_instead(job, devices=devices))))


def _device_name(job: GPUJob, *, devices: Devices) -> str:
    """The device that the task has, or else the one that it asks for."""
    if job.status.devices:
        first = job.status.devices[0]
        return devices.name_of(NodeDevice(first.node, first.index))
    if job.status.device == "cpu":
        return "cpu"
    try:
        request = request_of_job(job)
    except RequestError:
        return "cuda"
    if request is None:
        return "cpu"
    if request.device_node is None or request.device_index is None:
        return request.device
    return devices.name_of(NodeDevice(request.device_node, request.device_index))


def _no_task(name: str) -> RequestFailedError:
    return RequestFailedError(404, reason="NotFound", sentence=says.NO_TASK(task=name))
