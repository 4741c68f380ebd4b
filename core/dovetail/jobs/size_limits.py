"""Size limits of GPUJobs: spec, nesting, and the specs of an array's tasks together. Pure.

The API server stores objects of 1.5 MiB, and a controller that keeps all of them in memory must not depend on who
creates how many. The admission webhook refuses what exceeds a limit. The operator also refuses it: a job may be older
than the limit.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec

from dovetail import decoding, names
from dovetail.api.gpujob import MAX_TASKS, ArraySpec, GPUJob, GPUJobSpec, SweepSpec
from dovetail.api.meta import ObjectMeta
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import SaidError, Sentence
from dovetail.decoding import UnreadableError
from dovetail.jobs.array_tasks import TasksError, tasks_of

# Pod specs nest some 12 levels deep. Python's own recursion ends near 1,000.
MAX_DEPTH: Final = 64
# The API server accepts 256 KiB of annotations, and labels without a limit of their own.
MAX_METADATA_BYTES: Final = 320 << 10
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
# Labels and annotations that Dovetail reads: its own and Kueue's.
_PREFIXES: Final = (f"{names.GROUP}/", names.KUEUE_PREFIX)
_LONGEST_VALUE: Final = 1 << 10
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class JobLimitError(SaidError):
    """A GPUJob that is larger than allowed, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """The bytes allowed for the spec of one GPUJob, and for all tasks of an array or a sweep."""

    spec_bytes: int = 256 << 10
    array_bytes: int = 64 << 20


class _Numbering(msgspec.Struct, frozen=True):
    array: ArraySpec | None = None
    sweep: SweepSpec | None = None


def refusal_of_spec(spec: bytes | msgspec.Raw, *, limits: JobLimits) -> Sentence | None:
    """What is wrong with the size of a GPUJob's spec, given as JSON; None if nothing is."""
    size = _size(spec)
    if size > limits.spec_bytes:
        return says.SPEC_TOO_LARGE(size=f"{size:,}", most=f"{limits.spec_bytes:,}")
    # Almost all specs are too small for any number of tasks to matter.
    if size * MAX_TASKS > limits.array_bytes and size * (tasks := _count(spec)) > limits.array_bytes:
        total, most = f"{size * tasks:,}", f"{limits.array_bytes:,}"
        return says.TASKS_TOO_LARGE(tasks=f"{tasks:,}", size=f"{size:,}", total=total, most=most)
    return refusal_of_depth(spec, field="spec.template", within=1)


def refusal_of_job(job: GPUJob, *, limits: JobLimits) -> Sentence | None:
    """The same for an existing GPUJob, with its metadata."""
    if (size := len(msgspec.json.encode(job.metadata))) > MAX_METADATA_BYTES:
        return says.METADATA_TOO_LARGE(size=f"{size:,}", most=f"{MAX_METADATA_BYTES:,}")
    return refusal_of_spec(msgspec.json.encode(job.spec), limits=limits)


def refusal_of_depth(text: bytes | msgspec.Raw, *, field: str, within: int = 0) -> Sentence | None:
    """Why a `field`, `within` levels deep in this JSON, is nested too deeply; None if it is not."""
    content = bytes(text)
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH:
        return None
    depth = depth_of(content) - within
    return None if depth <= MAX_DEPTH else says.NESTED_TOO_DEEPLY(field=field, depth=f"{depth:,}", most=MAX_DEPTH)


def depth_of(text: bytes | msgspec.Raw) -> int:
    """How many levels deep JSON is nested, without recursion."""
    # Without escaped backslashes and quotes, every second part between quotes is a string.
    unquoted = bytes(text).replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(unquoted).translate(None, delete=_NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets), initial=0))


def without_bulk(meta: ObjectMeta) -> ObjectMeta:
    """Metadata with only the labels, annotations and owners that Dovetail itself reads."""
    return msgspec.structs.replace(
        meta,
        labels=_read_by_us(meta.labels),
        annotations=_read_by_us(meta.annotations),
        owner_references=tuple(owner for owner in meta.owner_references if owner.controller),
    )


def _read_by_us(said: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in said.items() if name.startswith(_PREFIXES) and len(value) <= _LONGEST_VALUE}


def _size(spec: bytes | msgspec.Raw) -> int:
    return memoryview(spec).nbytes


def _count(spec: bytes | msgspec.Raw) -> int:
    """The number of tasks of a spec; 1 without tasks, or where they cannot be counted."""
    try:
        numbering = decoding.decode(spec, as_type=_Numbering)
        if numbering.array is None and numbering.sweep is None:
            return 1
        counted = GPUJobSpec(array=numbering.array, sweep=numbering.sweep)
        return len(tasks_of(GPUJob(metadata=ObjectMeta(name="x"), spec=counted)))
    except (UnreadableError, TasksError):
        # The schema, or the check of its tasks, says what is wrong.
        return 1
