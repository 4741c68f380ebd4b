"""Objects of other APIs that say which plain pods start together: gangs. Pure.

A pod names its gang when it is created, and the webhook writes that name on it. The operator reads from the object how
many pods of each of its parts start together. Pods beyond these wait by themselves once the others have started.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from msgspec.structs import replace

from dovetail import names
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons import start as says
from dovetail.api.resources import Resource
from dovetail.jobs.guests.kind import Guest, GuestError, value_at, whole
from dovetail.jobs.guests.replicas import DISAGGREGATEDSETS, LEADERWORKERSETS

# Grove's labels of a pod, and the gate that it opens itself.
_GROVE_GANG: Final = "grove.io/podgang"
_GROVE_CLIQUE: Final = "grove.io/podclique"
_GROVE_INDEX: Final = "grove.io/podclique-pod-index"
_GROVE_GATE: Final = "grove.io/podgang-pending-creation"
# What the labels of a DisaggregatedSet's objects and pods begin with, and its API group.
_DISAGGREGATED: Final = "disaggregatedset.x-k8s.io"
# Each part has a pod, and a record has as many workers.
_MOST_PARTS: Final = 1024
_DIGITS: Final = re.compile(r"(\d+)")
Rank = tuple[tuple[int, int | str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """What an object says of the pods that name it.

    - `metadata`, `resource`: the object
    - `parts`: how many pods of each part start together, by the part's name
    - `required`: the node label of which all these pods have one value; empty without such a rule
    - `preferred`: the same, where there is room
    - `problem`: why its pods cannot wait in the queue; empty if they can
    - `condition`: the type of the condition that says whether these pods are scheduled; empty for a kind without one
    - `conditions`: all conditions that the object has
    - `needs`: what its status must have besides conditions, and has not
    """

    metadata: ObjectMeta
    resource: Resource
    parts: Mapping[str, int] = field(default_factory=dict)
    required: str = ""
    preferred: str = ""
    problem: str = ""
    condition: str = ""
    conditions: Sequence[Mapping[str, Any]] = ()
    needs: Mapping[str, str] = field(default_factory=dict)


class GangKind(Protocol):
    """The adapter of one kind of gangs."""

    @property
    def resource(self) -> Resource:
        """Where the API server has the objects that say how many pods start together."""

    @property
    def label_selector(self) -> str | None:
        """Which of these objects say so; None for all."""

    @property
    def called(self) -> str:
        """The kind and API group of its gangs, as the annotation of their pods writes them."""

    @property
    def prefix(self) -> str:
        """What the names of its records begin with."""

    @property
    def condition(self) -> str:
        """The type of the condition that says whether a gang's pods are scheduled; empty for a kind without one."""

    def named_by(self, pod: Guest) -> str:
        """The name of the gang that a new pod is of; empty for any other pod. Raises `GuestError`."""

    def part_of(self, pod: Guest) -> str:
        """The part of its gang that a pod is of."""

    def rank_of(self, pod: Guest) -> Rank:
        """The place of a pod in the order of ranks of its part."""

    def is_ready(self, pod: Guest) -> bool:
        """Whether its own controller lets the pod wait for a place."""

    def name_of(self, found: Guest) -> str:
        """The name of the gang of which an object says something."""

    def read(self, found: Sequence[Guest]) -> Gang:
        """What the objects of one gang say of its pods. Raises `GuestError`."""


class PodGroupObjects:
    """Kubernetes' own PodGroup. All its pods are one part; more than its `minCount` start by themselves."""

    resource: Resource = Resource(group="scheduling.k8s.io", version="v1beta1", plural="podgroups", kind="PodGroup")
    label_selector: str | None = None
    called: str = "PodGroup.scheduling.k8s.io"
    prefix: str = "schedulinggroup"
    condition: str = "PodGroupInitiallyScheduled"

    def named_by(self, pod: Guest) -> str:
        """The PodGroup that the pod's `schedulingGroup` names."""
        return _text(pod.spec, path=("schedulingGroup", "podGroupName"))

    def part_of(self, pod: Guest) -> str:  # noqa: ARG002 - a PodGroup has no parts
        """All pods are of one part."""
        return ""

    def rank_of(self, pod: Guest) -> Rank:
        """By the name, which controllers end with the index of the pod."""
        return by_number(pod.metadata.name)

    def is_ready(self, pod: Guest) -> bool:  # noqa: ARG002 - kube-scheduler alone looks at PodGroups
        """Always: no controller holds them."""
        return True

    def name_of(self, found: Guest) -> str:
        """That of the PodGroup."""
        return found.metadata.name

    def read(self, found: Sequence[Guest]) -> Gang:
        """The gang of a PodGroup. Under the policy `basic` its pods start one by one. Raises `GuestError`."""
        (group,) = found
        spec = group.spec
        least = value_at(spec, path=("schedulingPolicy", "gang", "minCount"))
        if least is None and value_at(spec, path=("schedulingPolicy", "basic")) is None:
            raise GuestError(says.GANG_WITHOUT_POLICY())
        keys = value_at(spec, path=("schedulingConstraints", "topology")) or []
        if len(keys) > 1:
            raise GuestError(says.GANG_OF_LEVELS(count=len(keys)))
        required = "".join(_text(key, path=("key",)) for key in keys)
        return Gang(
            metadata=group.metadata,
            resource=self.resource,
            parts={"": whole(least, default=1, field="schedulingPolicy.gang.minCount")},
            required=required,
            condition=self.condition,
            conditions=conditions_of(group),
        )


class PodGangs:
    """Grove's PodGang. Each PodClique is a part: `minReplicas` of its pods start with those of the others."""

    resource: Resource = Resource(group="scheduler.grove.io", version="v1alpha1", plural="podgangs", kind="PodGang")
    label_selector: str | None = None
    called: str = "PodGang.scheduler.grove.io"
    prefix: str = "podgang"
    condition: str = "Scheduled"

    def named_by(self, pod: Guest) -> str:
        """The PodGang that Grove's label names. Raises `GuestError` for a pod of Grove without it."""
        labels = pod.metadata.labels
        if _GROVE_CLIQUE in labels and _GROVE_GANG not in labels:
            raise GuestError(says.GANG_UNNAMED(label=_GROVE_GANG, clique=labels[_GROVE_CLIQUE][:63]))
        return labels.get(_GROVE_GANG, "")

    def part_of(self, pod: Guest) -> str:
        """Its PodClique."""
        return pod.metadata.labels.get(_GROVE_CLIQUE, "")

    def rank_of(self, pod: Guest) -> Rank:
        """By its index in the PodClique: its name ends at random."""
        return by_number(pod.metadata.labels.get(_GROVE_INDEX, pod.metadata.name))

    def is_ready(self, pod: Guest) -> bool:
        """Whether Grove has opened its own gate: the PodGang is complete, and what it builds on is scheduled."""
        return {"name": _GROVE_GATE} not in (pod.spec.get("schedulingGates") or [])

    def name_of(self, found: Guest) -> str:
        """That of the PodGang."""
        return found.metadata.name

    def read(self, found: Sequence[Guest]) -> Gang:
        """The gang of a PodGang. Raises `GuestError`."""
        (gang,) = found
        spec, parts = gang.spec, {}
        _refuse_parts(len(_objects(spec.get("podgroups"))))
        constraint = _pack(spec)
        inner = [each for key in ("podgroups", "topologyConstraintGroupConfigs") for each in _objects(spec.get(key))]
        for group in _objects(spec.get("podgroups")):
            parts[_text(group, path=("name",))] = whole(
                group.get("minReplicas"), default=1, field="podgroups[].minReplicas"
            )
        for each in inner:
            required = _pack(each).get("required")
            if required and required != constraint.get("required"):
                raise GuestError(says.GANG_PART_LEVEL(part=_text(each, path=("name",)), level=repr(str(required)[:60])))
        return Gang(
            metadata=gang.metadata,
            resource=self.resource,
            parts=parts,
            required=_text(constraint, path=("required",)),
            preferred=_text(constraint, path=("preferred",)),
            condition=self.condition,
            conditions=conditions_of(gang),
            needs={} if "phase" in gang.status else {"phase": "Pending"},
        )


class DisaggregatedSets:
    """LeaderWorkerSet's DisaggregatedSet. Each role is a part: all its replicas start with those of the others.

    A gang is a revision of a slice: that has a LeaderWorkerSet for each role, which says how many pods there are.
    """

    resource: Resource = LEADERWORKERSETS.resource
    label_selector: str | None = f"{_DISAGGREGATED}/name"
    called: str = f"DisaggregatedSet.{_DISAGGREGATED}"
    prefix: str = "disaggregatedset"
    condition: str = ""

    def named_by(self, pod: Guest) -> str:
        """The set, slice and revision that the labels of a pod name."""
        return self.name_of(pod)

    def part_of(self, pod: Guest) -> str:
        """Its role."""
        return pod.metadata.labels.get(f"{_DISAGGREGATED}/role", "")

    def rank_of(self, pod: Guest) -> Rank:
        """By its name, which has the indexes of the replica and of the pod in it."""
        return by_number(pod.metadata.name)

    def is_ready(self, pod: Guest) -> bool:  # noqa: ARG002 - no controller holds them
        """Always: no controller holds them."""
        return True

    def name_of(self, found: Guest) -> str:
        """The set, slice and revision that the labels of an object name; empty without them."""
        labels = found.metadata.labels
        name, revision = labels.get(f"{_DISAGGREGATED}/name"), labels.get(f"{_DISAGGREGATED}/revision")
        return f"{name}-{labels.get(f'{_DISAGGREGATED}/slice', '0')}-{revision}" if name and revision else ""

    def read(self, found: Sequence[Guest]) -> Gang:
        """The gang of the LeaderWorkerSets of a revision. A role without replicas has one pod missing.

        Raises `GuestError`.
        """
        said = {each.metadata.annotations.get(names.GANG_ROLES, "") for each in found}
        if said == {""}:
            raise GuestError(says.GANG_WITHOUT_ROLES(annotation=names.GANG_ROLES, label=names.LABEL_QUEUE))
        pods = {self.part_of(each): _pods_of(each) for each in found}
        _refuse_parts(max(said).count(",") + 1)
        roles = max(said).split(",")
        owners = [owner for owner in found[0].metadata.owner_references if owner.controller]
        owner = owners[0] if owners else None
        return Gang(
            metadata=found[0].metadata
            if owner is None
            else replace(
                found[0].metadata, name=owner.name, uid=owner.uid, labels={}, annotations={}, owner_references=()
            ),
            resource=self.resource if owner is None else DISAGGREGATEDSETS.resource,
            parts={role: max(1, pods.get(role, 0)) for role in roles},
        )


POD_GROUP_OBJECTS: Final = PodGroupObjects()
POD_GANGS: Final = PodGangs()
DISAGGREGATED_SETS: Final = DisaggregatedSets()
GANG_KINDS: Final[tuple[GangKind, ...]] = (POD_GROUP_OBJECTS, POD_GANGS, DISAGGREGATED_SETS)


def gang_named_by(pod: Guest) -> str:
    """The gang of a new pod, as its annotation writes it; empty for one without. Raises `GuestError`."""
    for kind in GANG_KINDS:
        if name := kind.named_by(pod):
            return written(kind, name=name)
    return ""


def gang_in(meta: ObjectMeta) -> tuple[GangKind, str] | None:
    """The kind and the name of the gang that a pod in the queue is of; None for one without."""
    said = meta.annotations.get(names.GANG, "")
    name = said.partition("/")[2]
    return next(((kind, name) for kind in GANG_KINDS if name and written(kind, name=name) == said), None)


def gang_of(found: Sequence[Guest], *, kind: GangKind) -> Gang:
    """What the objects of one gang say of its pods, or why these cannot wait in the queue."""
    try:
        return kind.read(found)
    except GuestError as error:
        name = kind.name_of(found[0])
        meta = found[0].metadata
        return Gang(metadata=meta, resource=kind.resource, problem=f"{what_of(kind, name=name)}: {error}")


def levels_of(gang: Gang, *, named: Mapping[str, str]) -> dict[str, str]:
    """The topology of a gang's record; `named` are the configured levels by their node labels. Raises `GuestError`."""
    found = {}
    for field_, label in (("required", gang.required), ("preferred", gang.preferred)):
        if label and label not in named:
            allowed = ", ".join(sorted(named))
            raise GuestError(says.GANG_LEVEL_UNKNOWN(label=repr(label), allowed=allowed))
        if label:
            found[field_] = named[label]
    return found


def _pack(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    found = value_at(spec, path=("topologyConstraint", "packConstraint"))
    return found if isinstance(found, Mapping) else {}


def _refuse_parts(count: int) -> None:
    """Check how many parts an object has, before each event of its pods reads them. Raises `GuestError`."""
    if count > _MOST_PARTS:
        raise GuestError(says.GANG_OF_PARTS(count=count, most=_MOST_PARTS))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _pods_of(found: Guest) -> int:
    """How many pods a LeaderWorkerSet asks for."""
    size = value_at(found.spec, path=("leaderWorkerTemplate", "size"))
    replicas = whole(found.spec.get("replicas"), default=1, field="replicas")
    return replicas * whole(size, default=1, field="leaderWorkerTemplate.size")


def conditions_of(found: Guest) -> list[Mapping[str, Any]]:
    """The conditions in an object's status, as they are."""
    return _objects(found.status.get("conditions"))


def scheduled_patch(gang: Gang, *, is_scheduled: bool, message: str, at: str) -> dict[str, Any] | None:
    """The change of the object's status that says whether its pods are scheduled; None if it says so already.

    Once they were, the condition stays true. `message` says what they wait for, and `at` is the time as RFC 3339.
    """
    before = next((each for each in gang.conditions if each.get("type") == gang.condition), {})
    if not gang.condition or before.get("status") == "True":
        return None
    said = {
        "type": gang.condition,
        "status": "True" if is_scheduled else "False",
        "reason": "Scheduled" if is_scheduled else "Unschedulable",
        "message": "All pods that start together have a node" if is_scheduled else message,
    }
    if all(before.get(key) == value for key, value in said.items()):
        return None
    since = before.get("lastTransitionTime", at) if before.get("status") == said["status"] else at
    others = [each for each in gang.conditions if each.get("type") != gang.condition]
    version = {"uid": gang.metadata.uid, "resourceVersion": gang.metadata.resource_version}
    conditions = [*others, {**said, "lastTransitionTime": since}]
    return {"metadata": version, "status": {**gang.needs, "conditions": conditions}}


def by_number(name: str) -> Rank:
    """The order of names that end in numbers: `a-2` is before `a-10`."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name) if part)


def what_of(kind: GangKind, *, name: str) -> str:
    """A gang as sentences call it."""
    return f"{kind.called.partition('.')[0]} {name}"


def written(kind: GangKind, *, name: str) -> str:
    """A gang as the annotation of its pods writes it."""
    return f"{kind.called}/{name}"


def _text(value: Any, *, path: tuple[str, ...]) -> str:
    found = value_at(value, path=path) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else ""
