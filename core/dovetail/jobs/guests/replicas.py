"""Kinds whose replicas wait one by one, such as Deployments: their label goes to their pods. Pure.

They have no field that holds them and no end. Each replica is a pod of its own in the queue, or a group of pods: fewer
replicas give their GPUs back, and more of them wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from dovetail import names
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons import start as says
from dovetail.api.resources import Resource
from dovetail.jobs.guests.admission import Patch, pointer
from dovetail.jobs.guests.kind import Guest, GuestError, Path, Template, pod_set, value_at

_LABELS: Final = (names.LABEL_QUEUE, names.LABEL_PROJECT)
_ANNOTATIONS: Final = (names.PRIORITY, names.PREEMPTIBLE)
# The labels of LeaderWorkerSet on a pod, and its annotation with the number of pods of a replica.
_LWS: Final = "leaderworkerset.sigs.k8s.io"
_LWS_NAME: Final = f"{_LWS}/name"
_LWS_GROUP: Final = f"{_LWS}/group-index"
_LWS_WORKER: Final = f"{_LWS}/worker-index"
_LWS_SIZE: Final = f"{_LWS}/size"
# The label of a Deployment's pods with the hash of their template, which ends the name of their ReplicaSet too.
_TEMPLATE_HASH: Final = "pod-template-hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """One kind; `templates` are the ways to its pod templates below `spec`, `each_of` that to a list of such."""

    resource: Resource
    templates: tuple[Path, ...] = ()
    each_of: Path = ()

    def paths(self, spec: Mapping[str, Any]) -> list[Path]:
        """The ways to the templates that are there."""
        listed = value_at(spec, path=self.each_of) if self.each_of else None
        each = [(*self.each_of, index) for index in range(len(listed))] if isinstance(listed, list) else []
        return [path for path in self.templates if value_at(spec, path=path) is not None] + each


DEPLOYMENTS: Final = Replicated(
    resource=Resource(group="apps", plural="deployments", kind="Deployment"), templates=(("template",),)
)
STATEFULSETS: Final = Replicated(
    resource=Resource(group="apps", plural="statefulsets", kind="StatefulSet"), templates=(("template",),)
)
LEADERWORKERSETS: Final = Replicated(
    resource=Resource(group="leaderworkerset.x-k8s.io", plural="leaderworkersets", kind="LeaderWorkerSet"),
    templates=(("leaderWorkerTemplate", "leaderTemplate"), ("leaderWorkerTemplate", "workerTemplate")),
)
# Its pods wait as one gang, which its LeaderWorkerSets say: they get the label from its roles.
DISAGGREGATEDSETS: Final = Replicated(
    resource=Resource(group="disaggregatedset.x-k8s.io", plural="disaggregatedsets", kind="DisaggregatedSet"),
    each_of=("roles",),
)
REPLICATED: Final = (DEPLOYMENTS, STATEFULSETS, LEADERWORKERSETS, DISAGGREGATEDSETS)


def replicated_of(*, group: str, kind: str) -> Replicated | None:
    """The adapter of a kind; None for a kind without one."""
    return next((each for each in REPLICATED if (each.resource.group, each.resource.kind) == (group, kind)), None)


def patch_of_replicated(found: Guest, *, kind: Replicated) -> Patch:
    """The changes to an object that names our queue: its pods name it too. Raises `GuestError`."""
    if names.LABEL_QUEUE not in found.metadata.labels or names.KUEUE_QUEUE in found.metadata.labels:
        return []
    more = {names.GANG_ROLES: _roles(found.spec)} if kind == DISAGGREGATEDSETS else {}
    _refuse_late_workers(found.spec, field="spec")
    patch: Patch = []
    for path in kind.paths(found.spec):
        part = pod_set(found.spec, path=path, count=1).template
        if more:
            _refuse_late_workers(part.spec, field=f"spec.roles[{path[-1]}].spec")
        patch += _named(part, path=path, of=found.metadata, more=more)
    return patch


def _roles(spec: Mapping[str, Any]) -> str:
    """The names of a DisaggregatedSet's roles, as its LeaderWorkerSets get them."""
    roles = spec.get("roles")
    listed = roles if isinstance(roles, list) else []
    return ",".join(str(role.get("name", "")) for role in listed if isinstance(role, Mapping))


def _refuse_late_workers(spec: Mapping[str, Any], *, field: str) -> None:
    if spec.get("startupPolicy") == "LeaderReady":
        raise GuestError(says.STARTS_TOGETHER(path=field))


def group_in(pod: ObjectMeta) -> Mapping[str, str]:
    """The group and size of a pod that LeaderWorkerSet made for a replica, by our names; empty for other pods."""
    name, size = pod.labels.get(_LWS_NAME), pod.annotations.get(_LWS_SIZE)
    if name is None or size is None:
        return {}
    # The leader of a replica has its name, and gets its index from a webhook that may run after ours.
    group = pod.name if pod.labels.get(_LWS_WORKER) == "0" else f"{name}-{pod.labels.get(_LWS_GROUP, '')}"
    return {names.POD_GROUP: group, names.POD_GROUP_SIZE: size}


def service_of(pod: ObjectMeta) -> tuple[str, str, str] | None:
    """Namespace, kind and name of the object whose replica the pod is; None for a pod without one.

    The pods of a Deployment are one service whatever their ReplicaSet, those of a LeaderWorkerSet whatever their group.
    """
    if _LWS_NAME in pod.labels:
        return pod.namespace, LEADERWORKERSETS.resource.kind, pod.labels[_LWS_NAME]
    owner = next((each for each in pod.owner_references if each.controller), None)
    if owner is None:
        return None
    template = pod.labels.get(_TEMPLATE_HASH)
    if owner.kind == "ReplicaSet" and template is not None and owner.name.endswith(f"-{template}"):
        return pod.namespace, DEPLOYMENTS.resource.kind, owner.name.removesuffix(f"-{template}")
    return pod.namespace, owner.kind, owner.name


def _named(template: Template, *, path: Path, of: ObjectMeta, more: Mapping[str, str] = MappingProxyType({})) -> Patch:
    """What the object says of the queue, where its template does not say it; `more` are annotations that it gets."""
    labels = {key: of.labels[key] for key in _LABELS if key in of.labels} | template.labels
    annotations = {key: of.annotations[key] for key in _ANNOTATIONS if key in of.annotations}
    annotations = {**annotations, **template.annotations, **more}
    if (labels, annotations) == (template.labels, template.annotations):
        return []
    where = pointer(path)
    metadata: Patch = [] if template.metadata is not None else [_add(f"{where}/metadata", value={})]
    return [
        *metadata,
        _add(f"{where}/metadata/labels", value=labels),
        _add(f"{where}/metadata/annotations", value=annotations),
    ]


def _add(path: str, *, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
