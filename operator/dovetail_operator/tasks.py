"""The tasks of an array or a sweep: which there are, and each as a GPUJob of its own. Pure."""

import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import KIND, MAX_TASKS, GPUJob, SweepSpec
from dovetail.asks import template_spec
from dovetail.indexes import IndexesError, indexes_in
from dovetail_operator.arraychanges import noted_fields
from dovetail_operator.ownership import owner_reference

Manifest = dict[str, Any]

_TASK_IDS: Final = (names.ENV_TASK_ID, names.ENV_GFLOW_TASK_ID, names.ENV_SLURM_TASK_ID)
# What a parameter cannot be called: it would not be seen, or hide which devices there are.
_RESERVED: Final = frozenset(
    {
        *_TASK_IDS, names.ENV_JOB_ID, names.ENV_GPU_UUIDS, names.ENV_VISIBLE_DEVICES, names.ENV_CUDA_DEVICES,
        names.ENV_MPS_PERCENTAGE, names.ENV_MPS_MEMORY, names.ENV_MPS_PIPE,
    }
)  # fmt: skip
# What the parent waits for or does itself, and no task of it.
_PARENTS_OWN: Final = (
    "array", "sweep", "suspend", "cancel", "beginTime", "dependencies", "dependencyPolicy", "onDependencyFailure",
)  # fmt: skip
_NAME_LIMIT: Final = 58
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([^{}]*)\}")
_CONTAINERS: Final = ("containers", "initContainers")


class TasksError(Exception):
    """What is wrong with an array or a sweep, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task: its index, the name of its GPUJob, and its parameters."""

    index: int
    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def tasks_of(job: GPUJob) -> list[Task]:
    """The tasks of an array or a sweep, by index. Raises `TasksError`."""
    name = job.metadata.name
    if job.spec.array is not None:
        try:
            return [Task(index=index, name=_numbered(name, index)) for index in indexes_in(job.spec.array.indexes)]
        except IndexesError as error:
            raise TasksError(f"spec.{error}") from error
    assert job.spec.sweep is not None, "asked of arrays and sweeps alone"
    return _of_sweep(name, job.spec.sweep)


def parallelism_of(job: GPUJob) -> int:
    """How many tasks may be under way at a time."""
    if job.spec.array is not None:
        _, _, said = job.spec.array.indexes.partition("%")
        return int(said) if said else job.spec.array.parallelism or MAX_TASKS
    return (job.spec.sweep.parallelism if job.spec.sweep is not None else None) or MAX_TASKS


def manifest_of(task: Task, *, parent: GPUJob) -> Manifest:
    """The GPUJob of a task: the parent's, with its index and its parameters in the environment and the commands."""
    spec: Manifest = msgspec.to_builtins(parent.spec)
    for own in _PARENTS_OWN:
        spec.pop(own, None)
    spec["template"] = {**spec["template"], "spec": _pod_spec(parent, task)}
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
        "spec": spec,
    }


def _of_sweep(name: str, sweep: SweepSpec) -> list[Task]:
    keys = [each.name for each in sweep.parameters]
    values = [each.values for each in sweep.parameters]
    count = len(values[0])
    if sweep.combine == "Product":
        for other in values[1:]:
            count *= len(other)
    _check_count(count, what="sweep")
    rows = itertools.product(*values) if sweep.combine == "Product" else zip(*values, strict=True)
    _check_template(sweep.name_template, known={"index", *keys})
    _check_parameters(keys)
    tasks = []
    for index, row in enumerate(rows):
        parameters = dict(zip(keys, row, strict=True))
        tasks.append(Task(index=index, name=_name(name, sweep, index, parameters), parameters=parameters))
    _check_names(tasks)
    return tasks


def _numbered(parent: str, index: int) -> str:
    # Not a number alone: commands call a second job of one name that.
    return f"{parent}-t{index}"


def _name(parent: str, sweep: SweepSpec, index: int, parameters: Mapping[str, str]) -> str:
    if not sweep.name_template:
        return _numbered(parent, index)
    said = _filled(sweep.name_template, {**parameters, "index": str(index)})
    fit = re.sub(r"[^a-z0-9]+", "-", said.lower()).strip("-")
    # Of a value that no name can have nothing may be left.
    return f"{parent}-{fit}"[:_NAME_LIMIT].rstrip("-") if fit else _numbered(parent, index)


def _check_names(tasks: Sequence[Task]) -> None:
    seen: dict[str, int] = {}
    for task in tasks:
        if task.name in seen:
            raise TasksError(
                f"sweep.nameTemplate gives tasks {seen[task.name]} and {task.index} the same name {task.name}: name "
                f"every parameter in it, or begin it with {{index}} (a name has {_NAME_LIMIT} of a-z, 0-9 and '-')"
            )
        seen[task.name] = task.index


def _check_template(template: str, *, known: Collection[str]) -> None:
    for word in _PLACEHOLDER.findall(template):
        if word not in known:
            words = ", ".join(f"{{{each}}}" for each in sorted(known))
            raise TasksError(f'sweep.nameTemplate "{template}" names {{{word}}}, which is none of {words}')


def _check_parameters(keys: Iterable[str]) -> None:
    for key in keys:
        if key in _RESERVED:
            raise TasksError(f"sweep parameter {key} is a variable that Dovetail sets itself: give it another name")


def _check_count(count: int, *, what: str) -> None:
    if count > MAX_TASKS:
        raise TasksError(f"{what} has {count} tasks or more, and {MAX_TASKS} are allowed: make several jobs of it")


def _pod_spec(parent: GPUJob, task: Task) -> Manifest:
    spec = template_spec(parent)
    for kind in _CONTAINERS:
        if kind in spec:
            spec[kind] = [_container(each, task) for each in spec[kind]]
    return spec


def _container(container: Manifest, task: Task) -> Manifest:
    ours = {**task.parameters, **dict.fromkeys(_TASK_IDS, str(task.index))}
    theirs = [entry for entry in container.get("env") or () if entry.get("name") not in ours]
    filled = {
        key: [_filled(word, task.parameters) for word in container[key]]
        for key in ("command", "args")
        if container.get(key)
    }
    # First, so that the user's own variables may refer to them.
    environment = [{"name": name, "value": value} for name, value in ours.items()]
    return {**container, **filled, "env": [*environment, *theirs]}


def _filled(text: str, parameters: Mapping[str, str]) -> str:
    """The text with `{name}` replaced; `${name}` is the shell's own business, and finds the variable."""
    # In one go: a value that looks like another parameter is a value.
    return _PLACEHOLDER.sub(lambda found: parameters.get(found[1], found[0]), text)
