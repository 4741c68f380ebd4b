"""Whether each worker of a job needs its own node, according to its template. Pure.

kube-scheduler would keep the second worker off a node: because of an anti-affinity against pods like it (plugin
InterPodAffinity), or because both want the same port of the node (NodePorts). A plan with both on one node could never
run, and the workers that start would wait for the rest forever.
"""

from collections.abc import Collection, Mapping
from typing import Final

from dovetail import names
from dovetail.api.builtin import LabelSelector
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.topology import HOSTNAME
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
