"""What a GPUJob says about the places of its workers: its topology, and how its template spreads its pods. Pure.

kube-scheduler keeps a second worker off a node because of an anti-affinity against pods like it (plugin
InterPodAffinity), or because both want the same port of the node (NodePorts). A plan with both on one node could never
run, and the workers that start would wait for the rest forever.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from dovetail import names
from dovetail.api.builtin import LabelSelector
from dovetail.api.gpujob import GPUJob, TopologySpec
from dovetail.api.reasons import start as says
from dovetail.engine.model.topology import HOSTNAME, Level, Spread, Topology
from dovetail.formats.suggestions import suggestion
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_guests
from dovetail.pods.node_affinity import holds
from dovetail.pods.template_types import PodTerm, TemplateSpec

# The labels that the Job controller gives all pods of a batch Job, with the name of the GPUJob.
_JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
_JOB_UIDS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
# The label in which workers differ.
_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def is_apart(job: GPUJob, *, where: TemplateSpec) -> bool:
    """Whether no two workers of the job can share a node.

    `where` is what their pods say about placement.
    """
    return job.spec.workers > 1 and (_takes_a_port(where) or _avoids_its_like(job, where=where))


def _takes_a_port(where: TemplateSpec) -> bool:
    sidecars = [each for each in where.init_containers if each.restart_policy == "Always"]
    ports = [port for each in (*where.containers, *sidecars) for port in each.ports]
    # With the node's network every port is a port of the node.
    return any(port.host_port or where.host_network for port in ports)


def _avoids_its_like(job: GPUJob, *, where: TemplateSpec) -> bool:
    return HOSTNAME in labels_apart(job, where=where)


def labels_apart(job: GPUJob, *, where: TemplateSpec) -> list[str]:
    """The labels of nodes such that no two workers share nodes with equal values, by anti-affinity."""
    if where.affinity is None or where.affinity.pod_anti_affinity is None:
        return []
    labels = labels_of_worker(job)
    return [
        term.topology_key
        for term in where.affinity.pod_anti_affinity.required
        if _is_of_its_namespace(term, job=job)
        and selects(term.label_selector, labels=labels, same=term.match_label_keys, different=term.mismatch_label_keys)
    ]


def labels_of_worker(job: GPUJob) -> dict[str, str]:
    """The labels of each worker's pod, as far as they matter.

    Where workers differ, those of the first one. The pods of a guest have its name, which its record's template says.
    """
    named = {} if is_guests(job) else dict.fromkeys(_JOB_NAMES, job.metadata.name)
    return {
        **job.spec.template.metadata.labels,
        names.LABEL_JOB: job.metadata.name,
        names.LABEL_JOB_NUMBER: str(job.status.number or ""),
        **named,
        **dict.fromkeys(_JOB_UIDS, ""),
        _INDEX: "0",
    }


def _is_of_its_namespace(term: PodTerm, *, job: GPUJob) -> bool:
    chosen = term.namespace_selector
    if chosen == LabelSelector():
        return True
    # The labels of the namespace are not known here: a namespace selector counts as not matching.
    return job.metadata.namespace in term.namespaces or (chosen is None and not term.namespaces)


def selects(
    selector: LabelSelector | None,
    *,
    labels: Mapping[str, str],
    same: Collection[str] = (),
    different: Collection[str] = (),
) -> bool:
    """Whether a selector of a worker's pod matches the job's other workers, which have these `labels` too.

    Of the labels `same`, the pods must have equal values, and of those `different`, other values.
    """
    if selector is None or _INDEX in same:
        return False
    if any(key in labels and key != _INDEX for key in different):
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds({"operator": each.operator, "values": each.values or []}, value=labels.get(each.key))
        for each in selector.match_expressions
    )


def topology_of(job: GPUJob, *, where: TemplateSpec, levels: tuple[Level, ...]) -> Topology | None:
    """The rules of a job's gang; None for a single worker. Raises `RequestError` for a level that is not configured.

    `where` is what its pods say about placement, and `levels` are the configured ones, from wide to narrow.
    """
    asked = job.spec.topology or TopologySpec()
    groups = asked.sub_groups
    named = {
        "required": asked.required or "",
        "preferred": asked.preferred or "",
        "subGroups.required": "" if groups is None else groups.required,
    }
    for field, name in named.items():
        _check_configured(name, field=field, levels=levels)
    for field in ("preferred", "subGroups.required"):
        _check_narrower(named[field], field=field, required=named["required"], levels=levels)
    if job.spec.workers == 1:
        return None
    return Topology(
        levels=levels,
        required=named["required"],
        preferred=named["preferred"],
        group_size=0 if groups is None else groups.size,
        group_level=named["subGroups.required"],
        spreads=tuple(_spreads(job, where=where)),
    )


def _check_configured(name: str, *, field: str, levels: tuple[Level, ...]) -> None:
    known = [level.name for level in levels]
    if name and name not in known:
        listed = f"the levels are {', '.join(known)}" if known else "no level is configured"
        hint = suggestion(name, known=known)
        raise RequestError(
            name, field=f"topology.{field}", problem=says.NO_LEVEL(levels=listed, hint=hint),
            example=f"{field}: {known[0]}" if known else "no topology",
        )  # fmt: skip


def _check_narrower(name: str, *, field: str, required: str, levels: tuple[Level, ...]) -> None:
    known = [level.name for level in levels]
    if not name or not required or known.index(name) > known.index(required):
        return
    narrower = known[known.index(required) + 1 :]
    raise RequestError(
        name, field=f"topology.{field}", problem=says.NARROWER(required=required),
        example=f"{field}: {narrower[0]}" if narrower else f"required: {known[0]}",
    )  # fmt: skip


def _spreads(job: GPUJob, *, where: TemplateSpec) -> Iterator[Spread]:
    """How the template spreads the job's own workers. One worker for each node is `Ask.apart`."""
    for label in labels_apart(job, where=where):
        if label != HOSTNAME:
            yield Spread(label=label, most=1)
    labels = labels_of_worker(job)
    for each in where.topology_spread_constraints:
        if each.when_unsatisfiable != "DoNotSchedule" or each.max_skew < 1:
            continue
        if selects(each.label_selector, labels=labels, same=each.match_label_keys):
            yield Spread(label=each.topology_key, max_skew=each.max_skew, min_domains=each.min_domains or 1)
