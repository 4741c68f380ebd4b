"""Tasks that are named before their array has made them: whose they will be. Pure.

An array makes no task while its dependencies are not met, so whoever waits for such a task waits for those too. By
`namespace/name` throughout.
"""

from collections.abc import Collection, Iterable

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.jobs.array_tasks import TasksError, tasks_of


def has_tasks(job: GPUJob) -> bool:
    """Whether the job is an array or a sweep."""
    return job.spec.array is not None or job.spec.sweep is not None


def is_task(job: GPUJob) -> bool:
    """Whether the job was made by an array."""
    return names.LABEL_ARRAY in job.metadata.labels


def of(array: GPUJob, keys: Iterable[str]) -> list[str]:
    """Those of the keys that are tasks of the array, there or not."""
    # All its tasks begin so; most keys do not, and need no list of its tasks.
    alike = [key for key in keys if key.startswith(f"{key_of(array.metadata)}-")]
    if not alike:
        return []
    try:
        tasks = {f"{array.metadata.namespace}/{task.name}" for task in tasks_of(array)}
    except TasksError:
        return []
    return [key for key in alike if key in tasks]


def of_all(jobs: Iterable[GPUJob], keys: Collection[str]) -> dict[str, str]:
    """Which of the keys are tasks of an array or a sweep among the jobs, and of which."""
    return {task: key_of(job.metadata) for job in jobs if has_tasks(job) for task in of(job, keys)}
