"""The environments that `gbatch` leaves for its jobs: files that only their user may read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail import names
from dovetail.jobs import local_submission
from dovetail_local_node import variables
from dovetail_local_node.admission import Refusal
from dovetail_local_node.pod_object import LocalPod

# Of the node's own environment, what a job without one starts from, as with Slurm's --export=NONE.
_MINIMAL: Final = ("HOME", "LOGNAME", "USER", "SHELL", "PATH", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
_SHARED_WITH_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments:
    """The folder of these files, and the environment of this process."""

    folder: Path
    own: Mapping[str, str]

    def environment(self, pod: LocalPod) -> dict[bytes, bytes] | Refusal:
        """The environment that the pod starts from."""
        name = pod.metadata.annotations.get(names.ENVIRONMENT)
        if name is None:
            return {os.fsencode(each): os.fsencode(self.own[each]) for each in _MINIMAL if each in self.own}
        if not local_submission.is_id(name):
            return _refused(f"{name[:40]!r} is not the name of an environment.")
        return self._read(self.folder / name)

    def _read(self, path: Path) -> dict[bytes, bytes] | Refusal:
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.getuid() or found.st_mode & _SHARED_WITH_OTHERS:
                    return _refused(f"{path} is not this user's alone.")
                return variables.parse_environment(file.read())
        except OSError as error:
            return _refused(f"{path}: {error.strerror}; submit the job again.")


def _refused(message: str) -> Refusal:
    return Refusal(reason="NoEnvironment", message=f"The environment of this job cannot be used: {message}")
