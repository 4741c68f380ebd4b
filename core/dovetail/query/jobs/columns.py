"""The columns of job lists, as gqueue names them: their values, and the order by them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.answers.owners import project_of, user_of
from dovetail.api.gpujob import GPUJob
from dovetail.jobs.display_name import display_name
from dovetail.jobs.runs import run_seconds
from dovetail.query.errors import InvalidQueryError
from dovetail.query.jobs.places import place_or_reason
from dovetail.query.jobs.requests import host_memory_mib, request_milli, request_text
from dovetail.query.jobs.states import phase_of, short_state, slurm_state

# gflow's columns, and then whose the job is and what each worker requests.
DEFAULT_FIELDS: Final = ("JOBID", "NAME", "ST", "TIME", "NODES", "NODELIST(REASON)", "USER", "GPUS")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What columns depend on besides the job.

    now       the time of the query
    one_node  whether the cluster has one GPU node, so that its name is left out
    """

    now: datetime
    one_node: bool = False


Column = Callable[[GPUJob, View], Any]


def _place(job: GPUJob, view: View) -> str:
    return place_or_reason(job, one_node=view.one_node)


# None is a value that a job does not have, or not yet. TIME and TIMELIMIT are seconds, MEMORY is MiB of each worker's
# host memory, ETA is RFC 3339.
COLUMNS: Final[Mapping[str, Column]] = {
    "JOBID": lambda job, _: job.status.number,
    "NAME": lambda job, _: display_name(job.metadata),
    "ST": lambda job, _: short_state(job),
    "STATE": lambda job, _: phase_of(job),
    "SLURM_STATE": lambda job, _: slurm_state(job),
    "TIME": lambda job, view: run_seconds(job.status, now=view.now),
    "TIMELIMIT": lambda job, _: job.spec.active_deadline_seconds,
    "NODES": lambda job, _: job.status.gpus,
    "GPUS": lambda job, _: request_text(job),
    "NODE": lambda job, _: job.status.node_list,
    "NODELIST(REASON)": _place,
    "NODELIST": _place,
    "MEMORY": lambda job, _: host_memory_mib(job),
    "PRIORITY": lambda job, _: job.spec.priority,
    "USER": lambda job, _: user_of(job),
    "PROJECT": lambda job, _: project_of(job) or None,
    "POSITION": lambda job, _: job.status.queue.position if job.status.queue else None,
    "ETA": lambda job, _: job.status.queue.estimated_start if job.status.queue else None,
}
# Asked for by the short name, the column has its full one.
_HEADS: Final = {"NODELIST": "NODELIST(REASON)"}
# Where jobs without a value come in the order; an empty text for the other columns.
_WITHOUT_VALUE: Final[Mapping[str, float]] = {"JOBID": 0, "TIME": 0, "TIMELIMIT": float("inf"), "POSITION": 0}


def parse_fields(text: str | None, *, field: str = "fields") -> list[str]:
    """The columns of a text such as `jobid,st`; the default ones for None. Raises `InvalidQueryError`."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.upper() not in COLUMNS:
            raise InvalidQueryError(f'{field} "{word}": unknown field, allowed are {", ".join(COLUMNS)}')
    return [_HEADS.get(word.upper(), word.upper()) for word in words] or list(DEFAULT_FIELDS)


def parse_sort(text: str | None, *, field: str = "sort") -> list[str]:
    """The columns to sort by, such as `-PRIORITY,JOBID`: `-` for the largest first. Raises `InvalidQueryError`."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    for word in words:
        if word.upper().removeprefix("-") not in COLUMNS:
            allowed = ", ".join(COLUMNS)
            raise InvalidQueryError(f'{field} "{word}": unknown field, allowed are {allowed}, also with - before them')
    return [word.upper() for word in words]


def sort_jobs(jobs: Sequence[GPUJob], *, fields: Sequence[str], view: View) -> list[GPUJob]:
    """The jobs in the order of these columns, the first column first; unchanged without columns."""
    ordered = list(jobs)
    for field in reversed(fields):
        ordered.sort(key=_sort_key(field.removeprefix("-"), view=view), reverse=field.startswith("-"))
    return ordered


def _sort_key(field: str, *, view: View) -> Callable[[GPUJob], Any]:
    if field == "GPUS":
        # By number and not by text: 16 comes after 2.
        return request_milli
    value, without = COLUMNS[field], _WITHOUT_VALUE.get(field, "")

    def key(job: GPUJob) -> Any:
        found = value(job, view)
        return without if found is None else found

    return key
