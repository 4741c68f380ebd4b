"""What a soak has seen: the record that it writes, and reads again."""

from pathlib import Path

import msgspec

from tools.soak.schedule import Kind


class RecordError(Exception):
    """A file is no record of a soak."""


class JobRecord(msgspec.Struct, kw_only=True):
    """One job: when it was submitted, answered, started and ended, in seconds after the start, and how it ended.

    It is answered when its status has a phase. `guaranteed` is how many GPUs it wants within the guarantee of its team;
    0 if it may borrow. `attempts` are the reasons why it ran again, `preempted` is how often others took its devices.
    `wrong` says in which way its end is not one that its kind may have; empty if it is.
    """

    name: str
    kind: str
    guaranteed: int = 0
    submitted: float
    answered: float | None = None
    started: float | None = None
    ended: float | None = None
    phase: str = ""
    attempts: list[str] = []
    preempted: int = 0
    wrong: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The resident memory of a process in MiB, at a time in seconds after the start."""

    at: float
    program: str
    pid: int
    mib: float


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of an audit; `failed` if the API server did not answer."""

    at: float
    findings: list[str]
    failed: str = ""


class Disturbed(msgspec.Struct, frozen=True, kw_only=True):
    """A disturbance as it was carried out; `target` is the program, empty for one of all."""

    at: float
    said: str
    kind: Kind
    target: str = ""
    seconds: float


class Record(msgspec.Struct, kw_only=True):
    """A whole soak.

    seconds       its length, without the end in which what waits may end
    seed          of its disturbances and jobs
    nodes         simulated nodes
    date          day, in ISO 8601
    jobs          all jobs
    samples       memory, every few seconds
    audits        all audits
    disturbances  what was done
    left_out      disturbances that this machine cannot carry out, each with the reason
    """

    seconds: float
    seed: int
    nodes: int
    date: str
    jobs: list[JobRecord] = []
    samples: list[Sample] = []
    audits: list[AuditRecord] = []
    disturbances: list[Disturbed] = []
    left_out: list[str] = []


def read(path: Path) -> Record:
    """The record that a soak has written. Raises `RecordError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except OSError as error:
        raise RecordError(f"--of {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise RecordError(f"--of {path}: no record of a soak, use its soak.json: {error}") from error
