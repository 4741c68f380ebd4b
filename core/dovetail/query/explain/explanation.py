"""The explanation of a subject, from the cluster's objects. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dovetail import names
from dovetail.answers.explain.answer import Answer
from dovetail.answers.explain.nodes import answer
from dovetail.answers.explain.question import Holder, Question
from dovetail.answers.inventory import DeviceUse, NodeReader, take
from dovetail.answers.questions import ExplainedDevice
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode, GPUNodeStatus
from dovetail.api.meta import key_of
from dovetail.api.reasons import explain as says
from dovetail.api.reasons import remedies as holds
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.cluster.dra_drivers import drivers_now
from dovetail.cluster.objects import ClusterObjects
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Ask
from dovetail.formats.timestamps import after, moment, timestamp
from dovetail.gpu.device_plugins import card_of
from dovetail.gpu.request import WHOLE_MILLI, RequestError
from dovetail.pods.allocation import AllocationError, allocation_in
from dovetail.pods.device_plugin import asks_by_kind, vendor_devices
from dovetail.query.explain.limits import kept_to_pools, limited, with_pool_reasons
from dovetail.query.explain.subjects import Subject
from dovetail.query.prices import Judge, judge_of_extender
from dovetail.query.queue_view import QueueView, queue_view
from dovetail.queue.inputs.run_ends import is_limited
from dovetail.queue.model.candidates import Candidate, way_of

# So many nodes of a subject are named.
_MOST_PLACES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A sentence, and the nodes' answers for a waiting subject or the devices of a placed one."""

    subject: Subject
    sentence: Sentence
    answer: Answer | None = None
    held: tuple[ExplainedDevice, ...] = ()
    # How nodes and devices are compared, if any fit.
    basis: Sentence = NOTHING
    # Every device of the subject's nodes.
    around: Mapping[str, Sequence[DeviceUse]] | None = None

    @property
    def summary(self) -> str:
        """The sentence as a text."""
        return self.sentence.message


def explain(subject: Subject, *, objects: ClusterObjects, now: datetime) -> Explanation:
    """Explain the subject from objects that were read at `now`."""
    if subject.state == "placed":
        return _placed(subject, objects=objects)
    if subject.said.message or subject.ask is None:
        return Explanation(subject=subject, sentence=subject.called + subject.said)
    question, basis = _question(kept_to_pools(subject, objects=objects), objects=objects, now=now)
    found = with_pool_reasons(answer(question), subject=subject, objects=objects)
    found = limited(found, subject=subject, nodes=question.nodes, objects=objects, now=now)
    # Omit the queue's note if it only says the summary with older numbers: a message is renewed every 30 s at most.
    notes = tuple(
        note
        for note in subject.notes
        if not _without_numbers(note.message).endswith(f": {_without_numbers(found.summary)}")
    )
    subject = replace(subject, notes=(*notes, says.LIMITS_NOT_COUNTED()) if objects.quotas is None else notes)
    basis = basis if found.fitting else NOTHING
    return Explanation(subject=subject, sentence=_sentence(subject, found=found), answer=found, basis=basis)


def _without_numbers(sentence: str) -> str:
    return re.sub(r"[0-9]+", "0", sentence)


def _question(subject: Subject, *, objects: ClusterObjects, now: datetime) -> tuple[Question, Sentence]:
    assert subject.ask is not None, "what asks nothing has no question"
    own = subject.uid if subject.kind == "GPUJob" else _owning_job(subject, objects=objects)
    queue = queue_view(objects, now=now, without=own)
    view, near = queue.view, subject.namespace
    jobs = {key_of(job.metadata): job for job in objects.jobs}
    holders = {pod.metadata.uid: _holder(pod, jobs=jobs, near=near, queue=queue) for pod in objects.pods}
    holders |= {key: _holder_job(job, near=near, queue=queue) for key, job in queue.starting.items()}
    question = Question(
        view=view,
        ask=subject.ask,
        workers=subject.workers,
        pod_spec=subject.pod_spec,
        holders=holders,
        planned=subject.kind == "GPUJob",
    )
    if subject.kind != "Pod":
        ask = _learned_ask(subject, objects=objects, queue=queue) or subject.ask
        way = _in_one_way(ask, workers=subject.workers, nodes=question.nodes, view=view)
        question = replace(question, ask=way)
    extender = judge_of_extender(view.ledger, objects=objects)
    return replace(question, term=extender.term), _basis(question, queue=queue.judge, extender=extender)


def _learned_ask(subject: Subject, *, objects: ClusterObjects, queue: QueueView) -> Ask | None:
    """A job's request, with memory estimated from its earlier runs; None for other subjects."""
    job = next((job for job in objects.jobs if job.metadata.uid == subject.uid), None)
    if subject.kind != "GPUJob" or job is None:
        return None
    ways = queue.learned.readable_ways(job, child=queue.batch_jobs.get(subject.uid))
    return next((way for way in ways if not way.resource), None)


def _in_one_way(ask: Ask, *, workers: int, nodes: Sequence[str], view: ClusterView) -> Ask:
    """The way in which the queue would meet the request: managed nodes or a vendor's plugin."""
    try:
        first, *others = asks_by_kind(ask, vendors=view.vendors)
    except RequestError:
        return ask
    job = Candidate(key="", ask=first, others=tuple(others), workers=workers, site="its")
    return way_of(job, ledger=view.ledger, sites={"its": nodes})


def _basis(question: Question, *, queue: Judge, extender: Judge) -> Sentence:
    """How nodes and devices are compared, in words."""
    term = extender.term
    if term.shortcoming:
        return says.MAY_DIFFER(shortcoming=term.shortcoming)
    if term.live == "bestfit":
        return says.BY_BEST_FIT()
    if question.planned:
        return says.NODES_COMPARED() + queue.words + says.AND_DEVICES() + extender.words
    return says.FRAGMENTATION_IS() + extender.words


def _owning_job(subject: Subject, *, objects: ClusterObjects) -> str:
    """The UID of the pod's job, because room for its waiting siblings must not count against it."""
    name = subject.pods[0].metadata.labels.get(names.LABEL_JOB) if subject.pods else None
    job = next((job for job in objects.jobs if key_of(job.metadata) == f"{subject.namespace}/{name}"), None)
    return "" if job is None else job.metadata.uid


def _holder(pod: Pod, *, jobs: Mapping[str, GPUJob], near: str, queue: QueueView) -> Holder:
    meta = pod.metadata
    job = jobs.get(f"{meta.namespace}/{meta.labels.get(names.LABEL_JOB, '')}")
    if job is None:
        return Holder(called=holds.HOLDING_POD(pod=f"{meta.namespace}/{meta.name}"))
    return _holder_job(job, near=near, queue=queue)


def _holder_job(job: GPUJob, *, near: str, queue: QueueView) -> Holder:
    meta, status = job.metadata, job.status
    name, elsewhere = str(status.number) if status.number else meta.name, meta.namespace != near
    called = holds.HOLDING_JOB_OF(job=name, namespace=meta.namespace) if elsewhere else holds.HOLDING_JOB(job=name)
    return Holder(called=called, ends_by=_ends_by(job, queue=queue))


def _ends_by(job: GPUJob, *, queue: QueueView) -> str:
    """The latest time at which the job frees its devices; empty if nothing limits its run."""
    child = queue.batch_jobs.get(job.metadata.uid)
    start = None if child is None else child.status.start_time
    if start is None or not is_limited(job):
        return ""
    return timestamp(after(moment(start), seconds=queue.run_times.run_seconds(job, child=child)))


def _sentence(subject: Subject, *, found: Answer) -> Sentence:
    if subject.kind == "Request":
        return found.sentence
    rest = _after_colon(found.sentence)
    if subject.state == "held":
        return subject.called + says.WOULD_BE_WITHOUT_HOLD() + rest
    if not found.fits:
        return subject.called + says.WAITS() + rest
    by_scheduler = subject.kind == "Pod" or subject.admitted
    return subject.called + (says.WAITS_FOR_SCHEDULER() if by_scheduler else says.WAITS_FOR_QUEUE()) + rest


# What a sentence begins with, and how the same goes on after a colon.
_AFTER_COLON: Final = {says.ALL_FIT.code: says.AND_ALL_FIT, says.FITS.code: says.AND_FITS}


def _after_colon(sentence: Sentence) -> Sentence:
    beginning, *rest = sentence.clauses
    clause = _AFTER_COLON.get(beginning.code)
    if clause is None:
        return sentence
    begun = clause(**beginning.parameters)
    # Only its first letter differs.
    message = begun.message + sentence.message[len(begun.message) :]
    return Sentence(reason=sentence.reason, message=message, clauses=(*begun.clauses, *rest))


def _placed(subject: Subject, *, objects: ClusterObjects) -> Explanation:
    bound = [pod for pod in subject.pods if pod.spec.node_name]
    held = tuple(each for pod in bound for each in _devices(pod) or _given(pod, gpunodes=objects.gpunodes))
    nodes = list(dict.fromkeys(pod.spec.node_name for pod in subject.pods if pod.spec.node_name))
    gpunodes = [gpunode for gpunode in objects.gpunodes if gpunode.metadata.name in nodes]
    here = [node for node in objects.nodes if node.metadata.name in nodes]
    reader = NodeReader(
        freshness=objects.freshness(), drivers=drivers_now(objects.slices), vendors=objects.settings.vendors
    )
    found = take(gpunodes, pods=objects.pods, scheduler="", namespace=subject.namespace, nodes=here, reader=reader)
    around = {name: node.uses for name, node in found.nodes.items()}
    if held:
        where = _places(nodes, held=held)
    elif any(vendor_devices(pod.spec, vendors=objects.settings.vendors) for pod in bound):
        where = says.NOT_REPORTED_YET(nodes=", ".join(nodes))
    else:
        where = says.NOT_ALLOCATED(nodes=", ".join(nodes))
    return Explanation(subject=subject, sentence=subject.called + says.IS_ON() + where, held=held, around=around)


def _places(nodes: Sequence[str], *, held: Sequence[ExplainedDevice]) -> Sentence:
    """The nodes with the devices there, the first few by name."""
    found = NOTHING
    for at, node in enumerate(nodes[:_MOST_PLACES]):
        found += says.NEXT_NODE() if at else NOTHING
        found += says.ON_WITH_DEVICES(node=node, indexes=_indices(held, node=node))
    return found + says.AND_NODES(count=len(nodes) - _MOST_PLACES) if len(nodes) > _MOST_PLACES else found


def _given(pod: Pod, *, gpunodes: Sequence[GPUNode]) -> list[ExplainedDevice]:
    """The devices that kubelet assigned to a pod for a vendor's plugin, as its node reports."""
    gpunode = next((each for each in gpunodes if each.metadata.name == pod.spec.node_name), None)
    status = GPUNodeStatus() if gpunode is None else gpunode.status
    uuids = {card_of(id_) for each in status.assignments if each.uid == pod.metadata.uid for id_ in each.devices}
    return [
        ExplainedDevice(
            pod=pod.metadata.name,
            node=pod.spec.node_name,
            index=device.index,
            uuid=device.uuid,
            share_milli=WHOLE_MILLI,
            memory_mib=device.memory_mib - device.reserved_mib,
        )
        for device in status.devices
        if device.uuid in uuids
    ]


def _indices(held: Sequence[ExplainedDevice], *, node: str) -> str:
    return ",".join(str(index) for index in sorted({each.index for each in held if each.node == node}))


def _devices(pod: Pod) -> list[ExplainedDevice]:
    try:
        allocation = allocation_in(pod.metadata.annotations)
    except AllocationError:
        return []
    return [
        ExplainedDevice(
            pod=pod.metadata.name,
            node=pod.spec.node_name,
            index=device.index,
            uuid=device.uuid,
            share_milli=device.share_milli,
            memory_mib=device.memory_mib,
        )
        for device in (allocation.devices if allocation else ())
    ]
