"""Whose a job is: its user and its project. Pure."""

from dovetail import names
from dovetail.api.gpujob import GPUJob


def user_of(job: GPUJob) -> str | None:
    """The user who submitted the job; None if admission recorded none."""
    return job.metadata.annotations.get(names.USER)


def project_of(job: GPUJob) -> str:
    """The job's project; empty for none."""
    return job.metadata.labels.get(names.LABEL_PROJECT, "")
