"""Plain pods as a guest: the pods of one group, or a pod of its own. Pure.

A pod cannot be suspended. Its group is held while none of its pods has a seat, and ending it deletes its pods.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import JobStatus, Pod, is_terminal
from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.api.reasons import start as says
from dovetail.api.resources import PODS, Resource
from dovetail.formats.quantities import read_whole
from dovetail.jobs.guests.gangs import GANG_KINDS, Gang, GangKind, gang_in, what_of
from dovetail.jobs.guests.kind import Guest, GuestError, Path, PodSet, conditions_in, pod_set, text
from dovetail.jobs.guests.record import name_with

MOST_PODS: Final = 1024
_CONDITIONS: Final = {"Complete": "Complete", "Failed": "Failed"}
# What a pod by which a guest grows has of that guest.
_OWNERS: Final = (names.USER, names.PRIORITY, names.PREEMPTIBLE)


class PodGroup(Guest, frozen=True, kw_only=True):
    """Pods that start together.

    - `metadata`: the name is the group's, or the pod's own; the rest is of the first pod, and the version of the last.
    - `spec.pods`: its pods in the form of templates. `spec.suspend`: whether it is held.
    - `members`: the owners of its record, its pods.
    - `replaced`: the UIDs of failed pods that others have replaced.
    - `going`: those of them that have not ended.
    - `missing`: the number of pods that do not exist yet.
    - `failed`: the number of its pods that have failed and were not replaced.
    - `problem`: why it cannot wait in the queue; empty if it can.
    - `surplus`: what to do with more pods than it has; empty without any.
    - `gang`: the object of another API that says which pods are its own; None for a plain group or without the object.
    - `order`: the UIDs of its pods in the order of their ranks; empty for a plain group, which has that of the names.
    - `is_bound`: whether all pods of a gang that start together have a node.
    - `more`: the UIDs of unfinished pods beyond those that start together: they start by themselves.
    """

    members: list[OwnerReference] = []
    replaced: list[str] = []
    going: list[OwnerReference] = []
    missing: int = 0
    failed: int = 0
    problem: str = ""
    surplus: str = ""
    gang: Gang | None = None
    order: list[str] = []
    is_bound: bool = False
    more: list[str] = []

    @property
    def uids(self) -> frozenset[str]:
        """The UIDs of its pods, and of those that others have replaced."""
        return frozenset({*self.member_uids, *self.replaced})

    @property
    def member_uids(self) -> frozenset[str]:
        """The UIDs of its pods."""
        return frozenset(each.uid for each in self.members)

    @property
    def is_growing(self) -> bool:
        """Whether some of its pods do not exist."""
        return bool(self.missing)

    def owners(self, resource: Resource) -> list[OwnerReference]:  # noqa: ARG002 - all are pods
        """Its pods: the garbage collector deletes the record after the last of them."""
        return self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroups:
    """The adapter of pods. `prefix` begins the names of their records."""

    prefix: str
    resource: Resource = PODS
    suspend_path: Path = ("suspend",)
    name_labels: tuple[str, ...] = ()

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """Each of its pods. Raises `GuestError`."""
        return [pod_set(spec, path=("pods", index), count=1, total=1) for index in range(len(spec["pods"]))]

    def progress(self, guest: Guest) -> JobStatus:
        """The numbers of its pods that have ended, and its end after the last of them."""
        status = guest.status
        conditions = conditions_in(status, renamed=_CONDITIONS)
        succeeded, failed = status["succeeded"], status["failed"]
        return JobStatus(succeeded=succeeded, failed=failed, conditions=conditions)


SINGLE_PODS: Final = PodGroups(prefix="pod")
POD_GROUPS: Final = PodGroups(prefix="podgroup")
_OF_GANGS: Final = {kind.prefix: PodGroups(prefix=kind.prefix) for kind in GANG_KINDS}


def kind_of_group(group: PodGroup) -> PodGroups:
    """The adapter of a group, or that of a pod of its own."""
    if (named := gang_in(group.metadata)) is not None:
        return _OF_GANGS[named[0].prefix]
    return POD_GROUPS if names.POD_GROUP in group.metadata.labels else SINGLE_PODS


def size_of(meta: ObjectMeta) -> int:
    """The number of pods in the group that a pod names; 1 for a pod of its own or of a gang. Raises `GuestError`."""
    label, written = meta.labels.get(names.POD_GROUP), meta.annotations.get(names.POD_GROUP_SIZE)
    if label is None:
        if written is not None:
            raise GuestError(
                says.GROUP_WITHOUT_LABEL(
                    annotation=names.POD_GROUP_SIZE, value=repr(written[:40]), label=names.POD_GROUP
                )
            )
        return 1
    if not label:
        raise GuestError(says.GROUP_UNNAMED(label=names.POD_GROUP))
    if written is None:
        raise GuestError(
            says.GROUP_WITHOUT_SIZE(
                label=names.POD_GROUP, value=repr(label), annotation=names.POD_GROUP_SIZE, most=MOST_PODS
            )
        )
    size = read_whole(written, otherwise=0)
    if not 1 <= size <= MOST_PODS:
        raise GuestError(
            says.WRONG_GROUP_SIZE(annotation=names.POD_GROUP_SIZE, value=repr(written[:40]), most=MOST_PODS)
        )
    return size


def group_of(pods: Sequence[Guest], *, gang: Gang | None = None) -> PodGroup | None:
    """The group of these pods, which name the same one; None if all are being deleted.

    Of too many pods, those with a seat and then the oldest are its own. `gang` is the object of another API that they
    name, if it exists.
    """
    present = sorted((pod for pod in pods if pod.metadata.deletion_timestamp is None), key=_rank)
    if not present:
        return None
    if (named := gang_in(present[0].metadata)) is not None:
        return _gang_of(present, kind=named[0], name=named[1], gang=gang)
    first = present[0].metadata
    size, problem = 1, ""
    try:
        size = size_of(first)
    except GuestError as error:
        problem = str(error)
    own, surplus = present[:size], present[size:]
    return replace(
        _grouped(present, own=own, name=first.labels.get(names.POD_GROUP) or first.name),
        status=_status(own, size=size),
        missing=size - len(own),
        problem=problem or _disagreement(own),
        surplus=_too_many(surplus, size=size),
    )


def _gang_of(present: Sequence[Guest], *, kind: GangKind, name: str, gang: Gang | None) -> PodGroup:
    """The group of pods that name an object of another API: so many of each part as that says.

    The others are no part of it, and neither is a pod that has started by itself.
    """
    what, record = what_of(kind, name=name), name_with(kind.prefix, name=name)
    if gang is None or gang.problem:
        problem = f"{what} does not exist: create it" if gang is None else gang.problem
        lost = _grouped(present, own=present, name=name)
        # It may be about to be created.
        return replace(lost, status=_status(present, size=len(present)), missing=int(gang is None), problem=problem)
    taken: Counter[str] = Counter()
    own = []
    for pod in present:
        part, of = kind.part_of(pod), pod.metadata.labels.get(names.LABEL_JOB)
        # A started pod stays one of them when the object asks for fewer.
        is_kept = of == record and _phase(pod) != "Failed"
        may_start = of == record or (of is None and kind.is_ready(pod))
        if is_kept or (may_start and taken[part] < gang.parts.get(part, 0)):
            own.append(pod)
            taken[part] += 1
    lacks = {part: (taken[part], count) for part, count in gang.parts.items() if taken[part] < count}
    missing = sum(count - there for there, count in lacks.values())
    problem = f"{what} waits for its pods: {_counted(lacks)}" if missing and not any(map(has_seat, own)) else ""
    chosen = {pod.metadata.uid for pod in own}
    order = {part: at for at, part in enumerate(gang.parts)}
    return replace(
        _grouped(present, own=own, name=name),
        status=_status(own, size=len(own) + missing),
        missing=missing,
        problem=problem or _disagreement(own),
        gang=gang,
        order=[
            pod.metadata.uid
            for pod in sorted(own, key=lambda pod: (order.get(kind.part_of(pod), 0), kind.rank_of(pod)))
        ],
        is_bound=not missing and all(pod.spec.get("nodeName") for pod in own),
        more=[
            pod.metadata.uid
            for pod in present
            if pod.metadata.uid not in chosen and not is_terminal(_phase(pod)) and kind.is_ready(pod)
        ],
    )


def _grouped(present: Sequence[Guest], *, own: Sequence[Guest], name: str) -> PodGroup:
    """A group of these pods, of which `own` start together."""
    first = present[0].metadata
    chosen = {pod.metadata.uid for pod in own}
    return PodGroup(
        metadata=ObjectMeta(
            name=name,
            namespace=first.namespace,
            uid=first.uid,
            resource_version=str(max(int(pod.metadata.resource_version) for pod in present)),
            creation_timestamp=first.creation_timestamp,
            labels=first.labels,
            annotations=first.annotations,
        ),
        spec={"pods": [_template(pod) for pod in own], "suspend": not any(has_seat(pod) for pod in own)},
        members=[_member(pod) for pod in own],
        replaced=[pod.metadata.uid for pod in present if _phase(pod) == "Failed" and pod.metadata.uid not in chosen],
        going=[_member(pod) for pod in own if not is_terminal(_phase(pod))],
        failed=sum(_phase(pod) == "Failed" for pod in own),
    )


def _counted(lacks: Mapping[str, tuple[int, int]]) -> str:
    """Which pods of a gang exist, such as `prefill 1 of 3`."""
    return ", ".join(f"{part} {there} of {count}".strip() for part, (there, count) in sorted(lacks.items()))


def added_pod(pod: Pod, *, to: Guest, record: GPUJob) -> PodGroup | None:
    """A pod by which a running guest has grown, as a pod that waits by itself in the guest's name.

    `record` is the guest's: the pod has the request of its workers, and goes where they may go. None for a pod that is
    being deleted.
    """
    meta, theirs = pod.metadata, to.metadata
    said = {key: theirs.annotations[key] for key in _OWNERS if key in theirs.annotations}
    # It starts alone, also if its group has started together.
    left_out = {*_OWNERS, names.POD_GROUP_SIZE, names.GANG}
    annotations = {key: value for key, value in meta.annotations.items() if key not in left_out}
    # What keeps the workers apart selects these labels.
    labels = {**record.spec.template.metadata.labels, names.RUN: meta.labels.get(names.RUN, "")}
    labels |= {key: value for key, value in theirs.labels.items() if key == names.LABEL_PROJECT}
    spec = spec_of(record.spec.template)
    gates = [{"name": gate.name} for gate in pod.spec.scheduling_gates]
    alone = Guest(
        metadata=replace(meta, labels=labels, annotations={**annotations, **said}),
        spec={**spec, "schedulingGates": gates},
        status={"phase": pod.status.phase},
    )
    return group_of([alone])


def guest_of(record: GPUJob) -> Guest:
    """What a record says of its guest, which has gone."""
    meta, spec = record.metadata, record.spec
    said = {names.PRIORITY: str(spec.priority), names.PREEMPTIBLE: str(spec.preemptible).lower()}
    annotations = {key: value for key, value in meta.annotations.items() if key == names.USER}
    return Guest(metadata=ObjectMeta(labels=meta.labels, annotations=annotations | said))


def has_seat(pod: Guest) -> bool:
    """Whether the operator has opened the pod's gate for a worker, or another of the group's pods."""
    gates = pod.spec.get("schedulingGates")
    return names.SEAT in pod.metadata.annotations or {"name": names.QUEUE_GATE} not in (gates or [])


def refuse_unready(group: PodGroup) -> None:
    """Check that a group can wait in the queue: it agrees, and all its pods exist. Raises `GuestError`.

    A group that has started does not return to the queue when a pod of it is deleted.
    """
    if group.problem:
        raise GuestError(says.GROUP_DISAGREES(problem=group.problem))
    if group.missing and group.spec["suspend"]:
        size = group.missing + len(group.members)
        raise GuestError(
            says.GROUP_INCOMPLETE(
                group=group.metadata.name,
                pods=len(group.members),
                size=size,
                label=names.POD_GROUP,
                annotation=names.POD_GROUP_SIZE,
            )
        )


def run_of_pod(meta: ObjectMeta, *, review: str) -> str:
    """The run of a new pod: that of its group, or one of its own for a review of that UID."""
    group = meta.annotations.get(names.GANG) or meta.labels.get(names.POD_GROUP)
    return f"pod-{review}" if group is None else run_of_group(group)


def run_of_group(group: str) -> str:
    """The run of the pods of a group, or of the gang that the annotation writes so."""
    return f"group-{hashlib.sha256(group.encode()).hexdigest()[:32]}"


def is_run_of_pods(run: str) -> bool:
    """Whether this is the run of pods that wait by themselves, and not of an object's pods."""
    return run.startswith(("pod-", "group-"))


def first_pod(group: PodGroup) -> ObjectMeta:
    """The pod of a group that its events are about."""
    pod = group.members[0]
    return ObjectMeta(name=pod.name, namespace=group.metadata.namespace, uid=pod.uid)


def _rank(pod: Guest) -> tuple[bool, bool, str, str]:
    """Pods of the group come before surplus ones, and a failed pod after the one that replaces it."""
    meta = pod.metadata
    return (_phase(pod) == "Failed", not has_seat(pod), meta.creation_timestamp, meta.name)


def _disagreement(pods: Sequence[Guest]) -> str:
    """Why these pods are no group; empty if they agree."""
    for what, values in (
        (
            f"annotation {names.POD_GROUP_SIZE}",
            {pod.metadata.annotations.get(names.POD_GROUP_SIZE, "") for pod in pods},
        ),
        (f"annotation {names.PRIORITY}", {pod.metadata.annotations.get(names.PRIORITY, "") for pod in pods}),
        (f"annotation {names.PREEMPTIBLE}", {pod.metadata.annotations.get(names.PREEMPTIBLE, "") for pod in pods}),
        (f"label {names.LABEL_PROJECT}", {pod.metadata.labels.get(names.LABEL_PROJECT, "") for pod in pods}),
        ("the user who created them", {pod.metadata.annotations.get(names.USER, "") for pod in pods}),
    ):
        if len(values) > 1:
            one, other, *_ = sorted(values)
            return f"its pods differ in {what} ({one[:60]!r} and {other[:60]!r}): the pods of a group must agree"
    return ""


def _too_many(surplus: Sequence[Guest], *, size: int) -> str:
    if not (left := [pod.metadata.name for pod in surplus if _phase(pod) != "Failed"]):
        return ""
    return (
        f"it has {size + len(left)} pods, and annotation {names.POD_GROUP_SIZE} says {size}: pod {left[0]} stays "
        "gated, so delete it or give it another group"
    )


def _phase(pod: Guest) -> str:
    return text(pod.status.get("phase"))


def _template(pod: Guest) -> dict[str, Any]:
    return {"metadata": {"labels": pod.metadata.labels, "annotations": pod.metadata.annotations}, "spec": pod.spec}


def _member(pod: Guest) -> OwnerReference:
    return OwnerReference(api_version=PODS.api_version, kind=PODS.kind, name=pod.metadata.name, uid=pod.metadata.uid)


def _status(pods: Sequence[Guest], *, size: int) -> dict[str, Any]:
    """How many pods have ended, and the end of a group of which no pod can go on."""
    phases = [_phase(pod) for pod in pods]
    succeeded, failed = phases.count("Succeeded"), phases.count("Failed")
    numbers = {"succeeded": succeeded, "failed": failed}
    if not all(is_terminal(phase) for phase in phases):
        return numbers
    counts = [f"{succeeded} of {size} pods succeeded", f"{failed} failed"]
    if size > len(pods):
        counts.append(f"{size - len(pods)} deleted")
    type_ = "Complete" if succeeded == size else "Failed"
    over = {"type": type_, "status": "True", "reason": "PodsEnded", "message": ", ".join(counts)}
    return {**numbers, "conditions": [over]}
