"""The GPUJob that stands for a guest in the queue: its record. Pure.

Queue, quotas, preemption, history and commands see the record, which is a GPUJob like any other. Only the operator
knows that its pods are the guest's.

Ports of the node, and labels that their own rules select, keep the workers of a guest apart. The queue plans workers of
one kind, so what only some templates of a guest say stays out.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import KIND as GPUJOB
from dovetail.api.gpujob import POLICIES_BY_LETTERS, GPUJob
from dovetail.api.reasons import start as says
from dovetail.formats.quantities import QuantityError, milli, read_whole
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors, is_mig
from dovetail.jobs.batch_job import is_guests
from dovetail.jobs.guests.kind import Guest, GuestError, Kind, PodSet, refuse_no_pods


def selected_labels(seated: Sequence[PodSet], *, given: Mapping[str, str]) -> dict[str, str]:
    """The labels that all workers have, and that their anti-affinity or spread constraints name.

    `given` are labels that the guest's controller gives the pods. No other label says where a pod may go.
    """
    spec = seated[0].template.spec
    affinity = spec.get("affinity")
    rules = affinity.get("podAntiAffinity") if isinstance(affinity, Mapping) else None
    named = _words(rules, spec.get("topologySpreadConstraints"))
    shared = set.intersection(*(set({**each.template.labels, **given}.items()) for each in seated))
    return {key: value for key, value in sorted(shared) if key in named}


def node_ports(seated: Sequence[PodSet]) -> list[int]:
    """The ports of its node that each worker takes."""
    return sorted(set.intersection(*(set(_ports(each.template.spec)) for each in seated)))


def _ports(spec: Mapping[str, Any]) -> Iterator[int]:
    # With the node's network every port is a port of the node.
    field = "containerPort" if spec.get("hostNetwork") is True else "hostPort"
    for key in ("containers", "initContainers"):
        found = spec.get(key)
        for container in found if isinstance(found, list) else ():
            if not isinstance(container, Mapping):
                continue
            is_sidecar = container.get("restartPolicy") == "Always"
            ports = container.get("ports") if key == "containers" or is_sidecar else None
            for port in ports if isinstance(ports, list) else ():
                number = port.get(field) if isinstance(port, Mapping) else None
                if isinstance(number, int) and number > 0:
                    yield number


def _words(*values: Any) -> set[str]:
    """All texts in these values."""
    found: set[str] = set()
    left = list(values)
    # Without recursion: a guest's spec may be nested deeply.
    while left:
        value = left.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, Mapping):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            left += value
    return found


Manifest = dict[str, Any]

# A GPUJob's name leaves room for the index of its workers.
_LONGEST_NAME: Final = 57
_MOST_WORKERS: Final = 1024
_MOST_PRIORITY: Final = 255
# What decides where a pod may go. All else stays out: a reader of GPUJobs may not be allowed to read the guest.
_PLACED_BY: Final = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead")
_CONTAINERS: Final = ("initContainers", "containers")
_COUNTED: Final = ("cpu", "memory", "ephemeral-storage")
_OPTIONS: Final = {"mode": names.MODE, "policy": names.POLICY, "workload": names.WORKLOAD}


def record_name(guest: Guest, *, kind: Kind) -> str:
    """The name of the guest's record, such as `job-train`."""
    return name_with(kind.prefix, name=guest.metadata.name)


def name_with(prefix: str, *, name: str) -> str:
    """The name of the record of the guest with this name, of the kind with this prefix."""
    full = f"{prefix}-{name}"
    plain = re.sub(r"[^a-z0-9-]", "-", full)
    if plain == full and len(plain) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - 9].rstrip('-')}-{digest}"


def is_record_of(job: GPUJob, *, guest: Guest) -> bool:
    """Whether the GPUJob records this very guest."""
    return is_guests(job) and not guest.uids.isdisjoint(owner.uid for owner in job.metadata.owner_references)


def seated_sets(sets: list[PodSet]) -> list[PodSet]:
    """The pod sets whose pods are workers of the record: those with GPUs, or all of a guest without any."""
    return [each for each in sets if each.asks_for_gpus] or sets


def record_of(guest: Guest, *, kind: Kind, vendors: Vendors = DEFAULT_VENDORS) -> Manifest:
    """The GPUJob of a guest. Raises `GuestError` for one that cannot wait in the queue."""
    sets = [each for each in kind.pod_sets(guest.spec) if each.count]
    refuse_no_pods(sets)
    for each in sets:
        _refuse_uncounted(each, vendors=vendors)
    seated = seated_sets(sets)
    workers = sum(each.count for each in seated)
    if workers > _MOST_WORKERS:
        raise GuestError(says.MOST_WORKERS(workers=workers, most=_MOST_WORKERS))
    spec = _common([_worker(each) for each in seated])
    _keep_apart(spec["template"], seated=seated, given=dict.fromkeys(kind.name_labels, guest.metadata.name))
    meta, annotations = guest.metadata, guest.metadata.annotations
    said = {names.USER: annotations[names.USER]} if names.USER in annotations else {}
    labels = {key: value for key, value in meta.labels.items() if key == names.LABEL_PROJECT}
    return {
        "apiVersion": names.API_VERSION,
        "kind": GPUJOB,
        "metadata": {
            "name": record_name(guest, kind=kind),
            "namespace": meta.namespace,
            "labels": labels,
            "annotations": said,
            "ownerReferences": [values_of(owner) for owner in guest.owners(kind.resource)],
        },
        "spec": {
            **spec,
            "managedBy": names.GUESTS_MANAGER,
            "workers": workers,
            "priority": _priority(annotations),
            "preemptible": _preemptible(annotations),
            "distributed": {"framework": "None"},
            "onNoGPU": "Wait",
        },
    }


def _worker(pods: PodSet) -> Manifest:
    """What the record says of each worker: its request, and of its template what decides where it may go."""
    annotations = pods.template.annotations
    options: Manifest = {field: annotations[key] for field, key in _OPTIONS.items() if key in annotations}
    if policy := options.get("policy"):
        options["policy"] = POLICIES_BY_LETTERS.get(str(policy).lower(), policy)
    if strategy := annotations.get(names.MEMORY_STRATEGY):
        options["memory"] = {"strategy": strategy}
    request = {"gpu": annotations[names.REQUEST]} if pods.asks_for_gpus else {"resources": {"device": "cpu"}}
    spec = pods.template.spec
    placed = {key: spec[key] for key in _PLACED_BY if spec.get(key)}
    containers = {key: [_sized(each) for each in spec[key]] for key in _CONTAINERS if isinstance(spec.get(key), list)}
    return {**request, **options, "template": {"spec": {**placed, **containers, "restartPolicy": "Never"}}}


def _common(workers: Sequence[Manifest]) -> Manifest:
    """The worker that has room for each of these. They may differ in CPU, memory and the names of containers alone.

    Raises `GuestError`.
    """
    first = workers[0]
    if all(each == first for each in workers):
        return first
    bare = _bare(first)
    if any(_bare(each) != bare for each in workers):
        raise GuestError(says.WORKERS_DIFFER())
    spec = first["template"]["spec"]
    widened = {
        key: [_widest(same) for same in zip(*(each["template"]["spec"][key] for each in workers), strict=True)]
        for key in _CONTAINERS
        if key in spec
    }
    return {**first, "template": {"spec": {**spec, **widened}}}


def _bare(worker: Manifest) -> Manifest:
    """A worker without the names of its containers and what they take."""
    spec = worker["template"]["spec"]
    left_out = ("name", "resources")
    bare = {
        key: [{what: value for what, value in each.items() if what not in left_out} for each in spec[key]]
        for key in _CONTAINERS
        if key in spec
    }
    return {**worker, "template": {"spec": {**spec, **bare}}}


def _widest(same: Sequence[Manifest]) -> Manifest:
    """The first of these containers with the most that one of them takes of each resource."""
    # A limit is the request where there is no other.
    asked = [{**each["resources"].get("limits", {}), **each["resources"].get("requests", {})} for each in same]
    most = {
        name: max((each[name] for each in asked if name in each), key=_amount)
        for name in dict.fromkeys(name for each in asked for name in each)
    }
    return {**same[0], "resources": {"requests": most}}


def _amount(quantity: Any) -> int:
    try:
        return milli(quantity)
    except QuantityError:
        # The API server refuses the pod.
        return 0


def _keep_apart(template: Manifest, *, seated: Sequence[PodSet], given: Mapping[str, str]) -> None:
    """Add to a worker's template what keeps the workers apart."""
    if labels := selected_labels(seated, given=given):
        template["metadata"] = {"labels": labels}
    containers, ports = template["spec"].get("containers"), node_ports(seated)
    if containers and ports:
        containers[0]["ports"] = [{"containerPort": port, "hostPort": port} for port in ports]


def _refuse_uncounted(pods: PodSet, *, vendors: Vendors) -> None:
    """Refuse a template that requests GPUs in another way: the queue would count it without them."""
    single = next((key for key in pods.template.annotations if key.startswith(f"{names.REQUEST}.")), None)
    if single is not None:
        raise GuestError(says.ONE_CONTAINER(annotation=single, request=names.REQUEST))
    if pods.asks_for_gpus:
        return
    spec = pods.template.spec
    parts = [spec[key] for key in ("initContainers", "containers") if isinstance(spec.get(key), list)]
    for container in (each for part in parts for each in part if isinstance(each, Mapping)):
        resources = container.get("resources")
        for amounts in resources.values() if isinstance(resources, Mapping) else ():
            asked = [name for name in amounts if _is_gpu(name, vendors=vendors)] if isinstance(amounts, Mapping) else []
            if asked:
                name = str(container.get("name", ""))[:63]
                raise GuestError(says.BY_ANNOTATION(container=name, resource=asked[0], annotation=names.REQUEST))


def _is_gpu(resource: str, *, vendors: Vendors) -> bool:
    return resource in names.MANAGED_RESOURCES or resource in vendors.resources or is_mig(resource)


def _sized(container: Any) -> Manifest:
    """A container's name and what it takes of its node's CPU and memory."""
    if not isinstance(container, Mapping):
        raise GuestError(says.NO_CONTAINER())
    resources = container.get("resources")
    amounts = {
        part: {key: value for key, value in found.items() if key in _COUNTED}
        for part in ("requests", "limits")
        if isinstance(resources, Mapping) and isinstance(found := resources.get(part), Mapping)
    }
    kept = {"restartPolicy": container["restartPolicy"]} if container.get("restartPolicy") else {}
    return {"name": str(container.get("name", "")), "resources": amounts, **kept}


def _priority(annotations: Mapping[str, str]) -> int:
    text = annotations.get(names.PRIORITY)
    if text is None:
        return 10
    priority = read_whole(text, otherwise=-1)
    if not 0 <= priority <= _MOST_PRIORITY:
        raise GuestError(says.WRONG_PRIORITY(annotation=names.PRIORITY, value=repr(text[:40])))
    return priority


def _preemptible(annotations: Mapping[str, str]) -> bool:
    text = annotations.get(names.PREEMPTIBLE, "true")
    if text not in {"true", "false"}:
        raise GuestError(says.WRONG_PREEMPTIBLE(annotation=names.PREEMPTIBLE, value=repr(text[:40])))
    return text == "true"
