"""Projects: what jobs are counted for, as a label of their GPUJobs. Pure."""

import re
from typing import Final

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail_cli.ui.errors import UsageError

_PROJECT: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def check(text: str, *, option: str) -> str:
    """The name of a project. Raises `UsageError` for one that no label can have."""
    if not _PROJECT.fullmatch(text):
        raise UsageError(
            f'{option} "{text}": write at most 63 letters, digits, ".", "_" or "-", a letter or digit at both ends'
        )
    return text


def read(texts: list[str] | None, *, option: str) -> frozenset[str]:
    """The projects that are named, separated by commas. Raises `UsageError`."""
    words = [word.strip() for text in texts or () for word in text.split(",") if word.strip()]
    return frozenset(check(word, option=option) for word in words)


def of(job: GPUJob) -> str:
    """The job's project; empty where it has none."""
    return job.metadata.labels.get(names.LABEL_PROJECT, "")
