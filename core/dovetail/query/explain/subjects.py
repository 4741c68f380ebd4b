"""The subject of an explanation (pod, job or request): its request and its state. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dovetail import names
from dovetail.answers.questions import State
from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.gpujob import FINISHED, GPUJob, GPUJobStatus
from dovetail.api.reasons import explain as says
from dovetail.api.reasons.capacity import COLON
from dovetail.api.reasons.clause import NOTHING, Sentence, sentence_from
from dovetail.api.reasons.codes import EXCEEDS_CAPACITY, FRAGMENTATION
from dovetail.api.reasons.queue import basis_of
from dovetail.cluster.batch_jobs import inferred_batch_job
from dovetail.config.settings import Settings
from dovetail.decoding import convert
from dovetail.engine.model.claims import Ask
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_guests, workers_without_node
from dovetail.jobs.guests.gangs import gang_in
from dovetail.jobs.guests.pod_group import POD_GROUPS, SINGLE_PODS
from dovetail.jobs.guests.record import name_with
from dovetail.jobs.runs import workers_of
from dovetail.pods.demand import as_started, ask_of_job, ask_of_pod, template_spec
from dovetail.pods.options.annotations import check_job, check_pod
from dovetail.pods.seats import misfit
from dovetail.pods.tenancy import controller_of
from dovetail.pods.translation.annotations import SCHEDULERS
from dovetail.pods.translation.translate import remedy
from dovetail.queue.inputs.candidates import sized


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of an explanation.

    kind       what it is
    called     the beginning of sentences about it, such as `Job 5 (train)`
    state      how far it is
    name       the object's name; empty for a request
    namespace  its namespace
    number     a job's number
    uid        the object's UID; empty for a request
    ask        each worker's request; None if it requests no GPU, or is unreadable
    workers    how many workers need room
    pod_spec   the spec of its pods, for their node constraints
    pods       the pod, or the job's pods
    said       why the engine is not asked, as what follows its name; empty if it is
    admitted   whether the queue has admitted it, and kube-scheduler has yet to place all of it
    notes      sentences from elsewhere, such as the queue's
    """

    kind: Literal["Pod", "GPUJob", "Request"]
    called: Sentence
    state: State
    name: str = ""
    namespace: str = ""
    number: int | None = None
    uid: str = ""
    ask: Ask | None = None
    workers: int = 1
    pod_spec: Mapping[str, Any] = field(default_factory=dict)
    pods: tuple[Pod, ...] = ()
    said: Sentence = NOTHING
    notes: tuple[Sentence, ...] = ()
    admitted: bool = False


def of_pod(raw: Mapping[str, Any], *, settings: Settings, jobs: Sequence[GPUJob] = ()) -> Subject:
    """The subject for a pod, from the pod's JSON object. `jobs` are all GPUJobs, of which one may be its record."""
    pod = convert(raw, as_type=Pod, strict=False)
    meta = pod.metadata
    subject = Subject(
        kind="Pod",
        called=says.POD(namespace=meta.namespace, pod=meta.name),
        state="waiting",
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        pod_spec=raw.get("spec") or {},
        pods=(pod,),
        notes=_gates(pod, jobs=jobs),
    )
    try:
        ranking = settings.rankings.of(meta.namespace)
        subject = replace(subject, ask=ask_of_pod(pod, ranking=ranking, vendors=settings.vendors))
        if not pod.spec.node_name:
            check_pod(pod, ranking=ranking)
    except (RequestError, QuantityError) as error:
        return replace(subject, state="invalid", said=says.UNREADABLE_REQUEST(problem=str(error)))
    return _pod_state(subject, pod=pod, vendors=settings.vendors)


def _pod_state(subject: Subject, *, pod: Pod, vendors: Vendors) -> Subject:
    if is_terminated(pod):
        why = says.IN_BRACKETS(why=pod.status.reason) if pod.status.reason else NOTHING
        return replace(subject, state="ended", said=says.HAS_ENDED(phase=pod.status.phase) + why)
    if subject.ask is None:
        text = pod.metadata.annotations.get(names.REQUEST)
        if text is not None:
            said = says.ANNOTATION_ALONE(annotation=names.REQUEST, request=text)
            return replace(subject, state="not ours", said=said)
        scheduler = pod.spec.scheduler_name if pod.spec.scheduler_name in SCHEDULERS else "kube-scheduler"
        said = says.ASKS_NO_GPU_OF_DOVETAIL(scheduler=scheduler)
        return replace(subject, state="not ours", said=said, notes=(*subject.notes, *_cure(pod, vendors=vendors)))
    if pod.spec.scheduler_name != names.SCHEDULER_NAME:
        called = pod.spec.scheduler_name or "default-scheduler"
        said = says.NAMES_OTHER_SCHEDULER(scheduler=called, own=names.SCHEDULER_NAME)
        return replace(subject, state="not ours", said=said, notes=(*subject.notes, *_cure(pod, vendors=vendors)))
    return replace(subject, state="placed") if pod.spec.node_name else subject


def _cure(pod: Pod, *, vendors: Vendors) -> tuple[Sentence, ...]:
    """How a pod without a node that asks for GPUs in other systems' words gets them from Dovetail."""
    cure = None if pod.spec.node_name else remedy(pod, vendors=vendors)
    return () if cure is None else (says.REMEDY(remedy=cure),)


def _gates(pod: Pod, *, jobs: Sequence[GPUJob]) -> tuple[Sentence, ...]:
    gates = [gate.name for gate in pod.spec.scheduling_gates]
    if not gates:
        return ()
    said = says.GATED(gates=", ".join(gates))
    group, is_alone = pod.metadata.labels.get(names.POD_GROUP), names.LABEL_QUEUE in pod.metadata.labels
    if names.QUEUE_GATE not in gates:
        return (said,)
    if (own := _record(jobs, of=pod.metadata.uid)) is not None:
        name, reason = own.metadata.name, own.status.reason
        why = says.REASON_AND_WORDS(reason=reason) + _words(own.status) if reason else NOTHING
        return (said, says.QUEUED_AS(job=name) + why, says.EXPLAIN_SAYS_MORE(job=name))
    if not (group or is_alone):
        controller = controller_of(pod)
        whole = None if controller is None else _record(jobs, of=controller.uid)
        return (said,) if whole is None else (said, _seat(pod, record=whole))
    plain = (POD_GROUPS, group) if group else (SINGLE_PODS, pod.metadata.name)
    kind, name = gang_in(pod.metadata) or plain
    record = name_with(kind.prefix, name=name)
    return (said, says.QUEUED_AS(job=record) + says.EXPLAIN_SAYS_WHY(job=record))


def _record(jobs: Sequence[GPUJob], *, of: str) -> GPUJob | None:
    """The record of the object, or pod, with this UID."""
    owned = (job for job in jobs if is_guests(job) and any(each.uid == of for each in job.metadata.owner_references))
    return next(owned, None)


def _seat(pod: Pod, *, record: GPUJob) -> Sentence:
    """What a gated pod of an object in the queue waits for."""
    if why := misfit(pod.metadata.annotations, record=record):
        return says.WORDS(message=why)
    name, phase = record.metadata.name, record.status.phase
    if phase in {"Starting", "Running"}:
        return says.SEATS_TAKEN(job=name)
    return says.GATE_OPENS_AT_START(job=name, phase=phase or "new")


def _words(status: GPUJobStatus) -> Sentence:
    """The message of a status, with its clauses where they are known."""
    return sentence_from(status) if status.details else says.WORDS(message=status.message)


def of_job(job: GPUJob, *, pods: Sequence[Pod], settings: Settings, child: Job | None = None) -> Subject:
    """The subject for a GPUJob, with its pods and its own batch Job, if it has one."""
    meta, status = job.metadata, job.status
    subject = Subject(
        kind="GPUJob",
        called=says.JOB_NUMBERED(number=status.number, job=meta.name) if status.number else says.JOB(job=meta.name),
        state="waiting",
        name=meta.name,
        namespace=meta.namespace,
        number=status.number,
        uid=meta.uid,
        # The fewest workers of an elastic job, because the queue does not wait for more.
        workers=job.spec.min_workers or job.spec.workers,
        pods=tuple(pods),
    )
    if status.phase in FINISHED:
        why = _because(job)
        ended = says.HAS_ENDED(phase=status.phase)
        return replace(subject, state="ended", said=ended + says.IN_BRACKETS(why=why) if why else ended)
    try:
        ranking = settings.rankings.of(meta.namespace)
        if status.placement is None:
            check_job(job, ranking=ranking)
        ask = as_started(ask_of_job(job, ranking=ranking, levels=settings.levels), job=job, use=job.status.memory)
        subject = replace(subject, ask=ask, pod_spec=template_spec(job))
    except (RequestError, QuantityError) as error:
        return replace(subject, state="invalid", said=says.UNREADABLE_REQUEST(problem=str(error)))
    if subject.ask is not None and subject.ask.gpu is None:
        if status.phase == "Queued" and status.reason == EXCEEDS_CAPACITY.code:
            return replace(subject, said=says.WAITS() + sentence_from(status))
        return replace(subject, state="not ours", said=says.ASKS_NO_GPU())
    return _job_state(subject, job=job, child=child)


def _job_state(subject: Subject, *, job: GPUJob, child: Job | None) -> Subject:
    status, missing = job.status, _missing(job, pods=subject.pods, child=child)
    if status.phase in {"Starting", "Running"} and status.device == "cpu":
        return replace(subject, state="not ours", said=says.RUNS_ON_CPU())
    if status.phase in {"Starting", "Running"} and not missing:
        return replace(subject, state="placed")
    if status.phase == "Starting":
        note = says.ADMITTED(missing=missing, workers=job.spec.workers)
        return replace(subject, workers=missing, notes=(note,), admitted=True)
    if status.phase in {"Held", "Suspended"}:
        held = says.IS_HELD() if status.phase == "Held" else says.IS_SUSPENDED()
        why = _because(job)
        return replace(subject, state="held", notes=(held + says.IN_BRACKETS(why=why) if why else held,))
    if status.phase is None:
        return replace(subject, notes=(says.NOT_SEEN(),))
    said = [says.QUEUE_SAYS(reason=status.reason) + _words(status)] if status.reason else []
    return replace(subject, notes=(*said, *_in_the_queue(status)))


def _missing(job: GPUJob, *, pods: Sequence[Pod], child: Job | None) -> int:
    """The number of workers without a node; without `child`, infer the batch Job from `pods`."""
    child = child or inferred_batch_job(job, pods=pods)
    if child is None:
        return workers_of(job)
    return workers_without_node(sized(job, child=child, verdict=None), child=child, pods=pods)


def _in_the_queue(status: GPUJobStatus) -> list[Sentence]:
    """Notes on a waiting job: its place in the queue, its expected start, its reserved room."""
    place = status.queue
    if place is None:
        return []
    said = [says.AT_PLACE(position=place.position)]
    if place.estimated_start is not None:
        expected = says.EXPECTED_AT(time=place.estimated_start)
        said.append(expected + COLON() + basis_of(place) if place.basis else expected)
        earliest, latest, held = place.estimated_start_earliest, place.estimated_start_latest, place.bounds_held
        if earliest and latest:
            bounds = says.BOUNDS(earliest=earliest, latest=latest)
            said.append(bounds if held is None else bounds + says.BOUNDS_HELD(percent=f"{100 * held:.0f}"))
    if place.reserved is not None:
        nodes = ", ".join(f"{node.name} ({node.workers})" for node in place.reserved.nodes)
        said.append(says.ROOM_KEPT(nodes=nodes, time=place.reserved.time))
    if status.reason == FRAGMENTATION.code and status.number is not None:
        said.append(says.TRY_MOVES(number=status.number))
    return said


def _because(job: GPUJob) -> str:
    status = job.status
    return ": ".join(filter(None, (status.reason, status.message)))
