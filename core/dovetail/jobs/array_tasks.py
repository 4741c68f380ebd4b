"""The tasks of an array or a sweep: their indexes, names and parameters. Pure.

TasksError   the problem with an array or a sweep, in a sentence
"""

import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail import names
from dovetail.api.gpujob import MAX_TASKS, GPUJob, GPUJobSpec, SweepSpec
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import SaidError
from dovetail.jobs.array_indexes import IndexesError, indexes_in

TASK_IDS: Final = (names.ENV_TASK_ID, names.ENV_GFLOW_TASK_ID, names.ENV_SLURM_TASK_ID)
# The variables with the number of the array.
ARRAY_IDS: Final = (names.ENV_ARRAY_JOB_ID, names.ENV_SLURM_ARRAY_JOB_ID)
# Forbidden names of parameters: the task would not see them, or they would hide its devices.
_RESERVED: Final = frozenset(
    {
        *TASK_IDS, *ARRAY_IDS, names.ENV_JOB_ID, names.ENV_GPU_UUIDS, names.ENV_VISIBLE_DEVICES,
        names.ENV_CUDA_DEVICES,
        names.ENV_MPS_PERCENTAGE, names.ENV_MPS_MEMORY, names.ENV_MPS_PIPE,
    }
)  # fmt: skip
# The variables that the workers of a gang use to find each other, in addition to torchrun's.
_RENDEZVOUS: Final = frozenset(
    {
        "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK", "TF_CONFIG",
        "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE",
        "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames",
        "PRTE_MCA_prte_default_hostfile", "PRTE_MCA_prte_keep_fqdn_hostnames",
    }
)  # fmt: skip
_TORCHRUN: Final = "PET_"
_NAME_LIMIT: Final = 58
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([^{}]*)\}")


class TasksError(SaidError):
    """The problem with an array or a sweep, in a sentence."""


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
            return [
                Task(index=index, name=_numbered(name, index=index)) for index in indexes_in(job.spec.array.indexes)
            ]
        except IndexesError as error:
            raise TasksError(says.WRONG_INDEXES(problem=str(error))) from error
    assert job.spec.sweep is not None, "asked of arrays and sweeps alone"
    _check_parameters(job.spec)
    return _of_sweep(name, sweep=job.spec.sweep)


def _of_sweep(name: str, *, sweep: SweepSpec) -> list[Task]:
    keys = [each.name for each in sweep.parameters]
    values = [each.values for each in sweep.parameters]
    rows = _product(values) if sweep.combine == "Product" else _side_by_side(values)
    _check_template(sweep.name_template, known={"index", *keys})
    tasks = []
    for index, row in enumerate(rows):
        parameters = dict(zip(keys, row, strict=True))
        tasks.append(
            Task(index=index, name=_name(name, sweep=sweep, index=index, parameters=parameters), parameters=parameters)
        )
    _check_names(tasks)
    return tasks


def _product(values: Sequence[Sequence[str]]) -> Iterable[tuple[str, ...]]:
    count = math.prod(map(len, values))
    if count > MAX_TASKS:
        raise TasksError(says.MOST_COMBINATIONS(count=count, most=MAX_TASKS))
    return itertools.product(*values)


def _side_by_side(values: Sequence[Sequence[str]]) -> Iterable[tuple[str, ...]]:
    try:
        return list(zip(*values, strict=True))
    except ValueError as error:
        raise TasksError(says.UNEVEN_VALUES()) from error


def _numbered(parent: str, *, index: int) -> str:
    # Not a number alone: commands use that for a second job of the same name.
    return f"{parent}-t{index}"


def _name(parent: str, *, sweep: SweepSpec, index: int, parameters: Mapping[str, str]) -> str:
    if not sweep.name_template:
        return _numbered(parent, index=index)
    said = filled(sweep.name_template, parameters={**parameters, "index": str(index)})
    fit = re.sub(r"[^a-z0-9]+", "-", said.lower()).strip("-")
    # Of a value that no name can contain, nothing may be left.
    return f"{parent}-{fit}"[:_NAME_LIMIT].rstrip("-") if fit else _numbered(parent, index=index)


def _check_names(tasks: Sequence[Task]) -> None:
    seen: dict[str, int] = {}
    for task in tasks:
        if task.name in seen:
            first, second = seen[task.name], task.index
            raise TasksError(
                says.SAME_TASK_NAME(first=first, second=second, name=task.name, index="{index}", most=_NAME_LIMIT)
            )
        seen[task.name] = task.index


def _check_template(template: str, *, known: Collection[str]) -> None:
    for word in _PLACEHOLDER.findall(template):
        if word not in known:
            words = ", ".join(f"{{{each}}}" for each in sorted(known))
            raise TasksError(says.UNKNOWN_WORD(template=template, word=f"{{{word}}}", words=words))


def _check_parameters(spec: GPUJobSpec) -> None:
    several = spec.workers > 1 or spec.min_workers is not None
    meet = several and (spec.distributed is None or spec.distributed.framework != "None")
    for parameter in spec.sweep.parameters if spec.sweep is not None else ():
        name = parameter.name
        if name in _RESERVED or (meet and (name in _RENDEZVOUS or name.startswith(_TORCHRUN))):
            raise TasksError(says.OWN_VARIABLE(parameter=name))


def filled(text: str, *, parameters: Mapping[str, str]) -> str:
    """The text with `{name}` replaced. `${name}` belongs to the shell, which finds the variable."""
    # In one pass: a value that looks like another parameter stays a value.
    return _PLACEHOLDER.sub(lambda found: parameters.get(found[1], found[0]), text)
