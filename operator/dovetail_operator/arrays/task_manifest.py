"""Manifests of the tasks of an array or a sweep, each a GPUJob. Pure.

A module of its own: it says what a task looks like, where `array_status` decides which ones exist.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import KIND, MAX_TASKS, GPUJob
from dovetail.jobs.array_tasks import ARRAY_IDS, TASK_IDS, Task, filled
from dovetail.jobs.batch_job import owner_reference
from dovetail.pods.demand import template_spec
from dovetail_operator.arrays.task_updates import noted_fields

Manifest = dict[str, Any]

# What the parent itself waits for or does, and its tasks do not.
_PARENTS_OWN: Final = (
    "array", "sweep", "suspend", "cancel", "beginTime", "dependencies", "dependencyPolicy", "onDependencyFailure",
)  # fmt: skip
_CONTAINERS: Final = ("containers", "initContainers")


def parallelism_of(job: GPUJob) -> int:
    """How many tasks may be unfinished at a time."""
    if job.spec.array is not None:
        _, _, said = job.spec.array.indexes.partition("%")
        return int(said) if said else job.spec.array.parallelism or MAX_TASKS
    return (job.spec.sweep.parallelism if job.spec.sweep is not None else None) or MAX_TASKS


def manifests_of(tasks: Sequence[Task], *, parent: GPUJob, number: int) -> list[Manifest]:
    """The GPUJobs of these tasks, with index, parameters and the parent's number in environment and commands.

    The manifests share their common parts: the template is decoded once.
    """
    if not tasks:
        return []
    spec: Manifest = values_of(parent.spec)
    for own in _PARENTS_OWN:
        spec.pop(own, None)
    pod_spec = template_spec(parent)
    numbers = dict.fromkeys(ARRAY_IDS, str(number))
    return [_manifest(task, parent=parent, spec=spec, pod_spec=pod_spec, numbers=numbers) for task in tasks]


def _manifest(
    task: Task, *, parent: GPUJob, spec: Manifest, pod_spec: Manifest, numbers: Mapping[str, str]
) -> Manifest:
    template = {**spec["template"], "spec": _for_task(pod_spec, task=task, numbers=numbers)}
    annotations = {name: value for name, value in parent.metadata.annotations.items() if name == names.USER}
    annotations |= noted_fields(parent)
    if task.parameters:
        annotations[names.PARAMETERS] = json.dumps(dict(task.parameters))
    return {
        "apiVersion": names.API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": task.name,
            "namespace": parent.metadata.namespace,
            "labels": {
                **parent.metadata.labels,
                names.LABEL_ARRAY: parent.metadata.name,
                names.LABEL_TASK: str(task.index),
            },
            "annotations": annotations,
            "ownerReferences": [msgspec.to_builtins(owner_reference(parent))],
        },
        "spec": {**spec, "template": template},
    }


def _for_task(spec: Manifest, *, task: Task, numbers: Mapping[str, str]) -> Manifest:
    containers: Manifest = {
        kind: [_container(each, task=task, numbers=numbers) for each in spec[kind]]
        for kind in _CONTAINERS
        if kind in spec
    }
    return {**spec, **containers}


def _container(container: Manifest, *, task: Task, numbers: Mapping[str, str]) -> Manifest:
    # Kubernetes reads $$ as $, and $(NAME) as a variable. Escaped, a value arrives as it was written.
    values = {name: value.replace("$", "$$") for name, value in task.parameters.items()}
    ours = {**values, **dict.fromkeys(TASK_IDS, str(task.index)), **numbers}
    theirs = [entry for entry in container.get("env") or () if entry.get("name") not in ours]
    commands = {key: _with_values(container[key], values=values) for key in ("command", "args") if container.get(key)}
    # First, so that the user's own variables may refer to them.
    environment = [{"name": name, "value": value} for name, value in ours.items()]
    return {**container, **commands, "env": [*environment, *theirs]}


def _with_values(words: Any, *, values: Mapping[str, str]) -> Any:
    """The command with the parameters filled in.

    Anything but a list is left to the API server to refuse.
    """
    if not isinstance(words, list):
        return words
    return [filled(word, parameters=values) if isinstance(word, str) else word for word in words]
