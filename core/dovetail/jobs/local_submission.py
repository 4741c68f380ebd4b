"""What a submission leaves on the user's own machine for the local node. Pure.

The environment of a job holds secrets, so it travels in a file that only its user may read, and the job names the file
by an unguessable ID. API objects are readable to everyone who may list jobs, and stay in backups of etcd.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders below `${XDG_DATA_HOME:-~/.local/share}/gflow`."""

    data: Path

    @property
    def logs(self) -> Path:
        """The output of jobs: `<number>.log`."""
        return self.data / "logs"

    @property
    def environments(self) -> Path:
        """The environments of submissions, by ID."""
        return self.data / "environments"

    @property
    def files(self) -> Path:
        """The files that go along with submissions, by the same ID."""
        return self.data / "files"

    @property
    def calls(self) -> Path:
        """The functions that jobs call, and what they return, by an ID."""
        return self.data / "calls"


def is_id(text: str) -> bool:
    """Whether a text can be the ID of a submission's environment: it becomes part of a path."""
    return _ID.fullmatch(text) is not None
