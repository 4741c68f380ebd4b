"""What the queue needs to know of a guest's kind: the protocol of an adapter, and the values that it returns. Pure.

GuestError         a guest that cannot wait in the queue, in one sentence
└── NoPodsError    it asks for no pods now
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import Condition, JobStatus
from dovetail.api.meta import Described, ObjectMeta, OwnerReference
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import SaidError
from dovetail.api.resources import Resource
from dovetail.decoding import UnreadableError, convert


class GuestError(SaidError):
    """The guest cannot wait in the queue; the message is one sentence for its owner."""


class NoPodsError(GuestError):
    """The guest asks for no pods now."""


class Guest(Described, frozen=True, kw_only=True):
    """An object of another kind. Spec and status stay plain values, which its adapter reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def uids(self) -> frozenset[str]:
        """The UIDs by which its record names it."""
        return frozenset({self.metadata.uid})

    @property
    def is_growing(self) -> bool:
        """Whether a part of it that the queue needs does not exist yet."""
        return False

    def owners(self, resource: Resource) -> list[OwnerReference]:
        """The owners of its record: the record is deleted with them. `resource` is the guest's kind."""
        meta = self.metadata
        return [
            OwnerReference(
                api_version=resource.api_version, kind=resource.kind, name=meta.name, uid=meta.uid, controller=True
            )
        ]


class TemplateMeta(Described, frozen=True, kw_only=True):
    """Labels and annotations of a pod template; a kind without a schema may have null for them."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Template(Described, frozen=True, kw_only=True):
    """A pod template of a guest."""

    metadata: TemplateMeta | None = None
    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pods."""
        return (self.metadata.labels if self.metadata is not None else None) or {}

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of its pods."""
        return (self.metadata.annotations if self.metadata is not None else None) or {}


# The way to a value below `spec`: keys, and indexes of lists.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Pods of one template, `count` at the same time. `path` is the template's below `spec`.

    `total` of them succeed in all, and none follows those; None for pods that run until they are deleted.
    """

    path: Path
    template: Template
    count: int
    total: int | None = None

    @property
    def asks_for_gpus(self) -> bool:
        """Whether its pods request GPUs by Dovetail's annotation."""
        return names.REQUEST in self.template.annotations


class Kind(Protocol):
    """The adapter of one kind."""

    @property
    def resource(self) -> Resource:
        """Where the API server has the kind."""

    @property
    def prefix(self) -> str:
        """What the names of its records begin with."""

    @property
    def suspend_path(self) -> Path:
        """The way to the field below `spec` that holds the guest; true while it may have no pods."""

    @property
    def name_labels(self) -> tuple[str, ...]:
        """The labels by which the guest's controller gives its name to all its pods."""

    def pod_sets(self, spec: Mapping[str, Any]) -> list[PodSet]:
        """The pods that the guest has at the same time. Raises `GuestError`."""

    def progress(self, guest: Guest) -> JobStatus:
        """How far the guest is, as a batch Job would say it."""


def value_at(spec: Mapping[str, Any], *, path: Path) -> Any:
    """The value below `spec`; None where something on the way is missing."""
    found: Any = spec
    for step in path:
        if isinstance(found, Mapping) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return None
    return found


def pod_set(spec: Mapping[str, Any], *, path: Path, count: int, total: int | None = None) -> PodSet:
    """The pod set whose template is at this place. Raises `GuestError`."""
    found = value_at(spec, path=path)
    try:
        template = convert(found, as_type=Template)
    except UnreadableError as error:
        raise GuestError(says.NO_TEMPLATE_THERE(path=_written(path), problem=error.problem)) from error
    return PodSet(path=path, template=template, count=count, total=total)


def refuse_no_pods(sets: Sequence[PodSet]) -> None:
    """Check that a guest asks for a pod. Raises `GuestError`."""
    if not any(each.count for each in sets):
        raise NoPodsError(says.NO_PODS())


def whole(value: Any, *, default: int, field: str) -> int:
    """A count of the spec. Raises `GuestError` for anything but a whole number from 0."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise GuestError(says.NO_WHOLE_NUMBER(field=field, value=repr(str(value)[:40])))
    return value


def text(value: Any) -> str:
    """A text of a status; empty for anything else."""
    return value if isinstance(value, str) else ""


def has_ended(guest: Guest, *, kind: Kind) -> bool:
    """Whether the guest is over."""
    ends = {"Complete", "Failed"}
    return any(each.type in ends and each.status == "True" for each in kind.progress(guest).conditions)


def is_suspended(guest: Guest, *, kind: Kind) -> bool:
    """Whether the guest is held."""
    return value_at(guest.spec, path=kind.suspend_path) is True


def suspend_patch(kind: Kind, *, suspend: bool) -> dict[str, Any]:
    """The change of the guest's spec that holds it or lets it go."""
    patch: Any = suspend
    for step in reversed(kind.suspend_path):
        patch = {step: patch}
    return {"spec": patch}


def conditions_in(status: Mapping[str, Any], *, renamed: Mapping[str, str]) -> tuple[Condition, ...]:
    """The conditions of a status that `renamed` has, under the names of a batch Job's. Others are left out."""
    try:
        found = convert(status.get("conditions") or [], as_type=list[Condition])
    except UnreadableError:
        return ()
    return tuple(replace(each, type=renamed[each.type]) for each in found if each.type in renamed)


def _written(path: Path) -> str:
    written = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return written.removeprefix(".")
