"""The states of jobs in lists: phases, and Slurm's letters for them. Pure."""

from typing import Final

from dovetail.api.gpujob import FINISHED, GPUJob, Phase
from dovetail.query.errors import InvalidQueryError

# Slurm's letters. As in Slurm, a starting job counts as pending and a suspended job as held.
SHORT: Final[dict[Phase, str]] = {
    "Queued": "PD", "Starting": "PD", "Held": "H", "Suspended": "H", "Running": "R", "Succeeded": "CD", "Failed": "F",
    "Cancelled": "CA", "TimedOut": "TO", "Preempted": "PR",
}  # fmt: skip
# The long names that a query takes in addition to phases.
_LONG: Final = {
    "QUEUED": "PD", "PENDING": "PD", "HOLD": "H", "HELD": "H", "RUNNING": "R", "FINISHED": "CD", "COMPLETED": "CD",
    "FAILED": "F", "CANCELLED": "CA", "TIMEOUT": "TO", "PREEMPTED": "PR",
}  # fmt: skip
# Slurm writes these in capitals, and has no state of its own for a job that is held.
_SLURM: Final = {
    "PD": "PENDING", "H": "PENDING", "R": "RUNNING", "CD": "COMPLETED", "F": "FAILED", "CA": "CANCELLED",
    "TO": "TIMEOUT", "PR": "PREEMPTED",
}  # fmt: skip
_SYNONYMS: Final = frozenset({"PENDING", "HELD", "COMPLETED"})


def phase_of(job: GPUJob) -> Phase:
    """The job's phase; Queued for a job that no operator has seen yet."""
    return job.status.phase or "Queued"


def short_state(job: GPUJob) -> str:
    """Slurm's letters for the job's phase."""
    return SHORT[phase_of(job)]


def slurm_state(job: GPUJob) -> str:
    """The job's state as `squeue -o %T` writes it, such as `RUNNING`."""
    phase = phase_of(job)
    return "SUSPENDED" if phase == "Suspended" else _SLURM[SHORT[phase]]


def is_unfinished(job: GPUJob) -> bool:
    """Whether the job waits or runs."""
    return phase_of(job) not in FINISHED


def long_name(short: str) -> str:
    """The long name of Slurm's letters: `Queued` for `PD`."""
    return next(long for long, each in _LONG.items() if each == short).capitalize()


def parse_states(text: str | None, *, field: str = "states") -> frozenset[str]:
    """The states of a text such as `PD,running`, as Slurm's letters; empty for None.

    Letters, long names and phases are allowed, in any case. Raises `InvalidQueryError`.
    """
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    return frozenset(_short_of(word, field=field) for word in words)


def _short_of(word: str, *, field: str) -> str:
    state = word.upper()
    if state in SHORT.values():
        return state
    found = _LONG.get(state) or next((short for phase, short in SHORT.items() if phase.upper() == state), None)
    if found is None:
        allowed = ", ".join(f"{long} {short}" for long, short in _LONG.items() if long not in _SYNONYMS)
        raise InvalidQueryError(f'{field} "{word}": unknown state, allowed are {allowed}')
    return found
