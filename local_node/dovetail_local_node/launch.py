"""What a pod becomes on this machine: words, directory, environment, output. Pure."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail import names
from dovetail_local_node import variables, volumes
from dovetail_local_node.pod_object import LocalPod

# In the environment of each process of a pod: by it, processes are found that have left their process group.
MARK: Final = "DOVETAIL_POD_UID"
_PLACEHOLDER: Final = re.compile(r"%([%jAxauN])")
_NO_OUTPUT: Final = "/dev/null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where jobs run: the user and the accounts that act for it, the node, its address, and the folder of the logs."""

    user: str
    accounts: tuple[str, ...] = ()
    node: str
    address: str
    logs: Path
    home: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process to start. `error` is empty if standard error goes to the output too."""

    words: tuple[bytes, ...]
    directory: bytes
    environment: Mapping[bytes, bytes]
    output: Path
    error: Path | None = None


def launch_of(
    pod: LocalPod,
    *,
    base: Mapping[bytes, bytes],
    extra: Mapping[str, str],
    numbers: Mapping[str, int],
    place: Place,
    folder: Path,
) -> Launch:
    """The process of a pod. `base` is the environment that it starts from, `extra` are further variables.

    `numbers` are CUDA's numbers of this machine's devices by UUID, `folder` has the pod's volumes.
    """
    container = pod.spec.containers[0]
    mounts = volumes.places(pod, folder=folder)
    found = variables.container_variables(pod, address=place.address, numbers=numbers)
    own = {name: volumes.at_home(value, mounts=mounts) for name, value in found.items()}
    own |= {**volumes.variables(pod, folder=folder), **extra, MARK: pod.metadata.uid}
    words = [
        variables.expanded(volumes.at_home(word, mounts=mounts), known=own)
        for word in (*container.command, *container.args)
    ]
    annotations = pod.metadata.annotations
    error = annotations.get(names.ERROR_FILE)
    return Launch(
        words=tuple(os.fsencode(word) for word in words),
        directory=os.fsencode(volumes.at_home(container.working_dir, mounts=mounts) or place.home),
        environment={**base, **{os.fsencode(name): os.fsencode(value) for name, value in own.items()}},
        output=_output(pod, pattern=annotations.get(names.OUTPUT_FILE), known=own, place=place),
        error=None if error is None else _path(error, pod=pod, known=own, place=place),
    )


def _output(pod: LocalPod, *, pattern: str | None, known: Mapping[str, str], place: Place) -> Path:
    if pattern is not None:
        return _path(pattern, pod=pod, known=known, place=place)
    number = pod.metadata.labels.get(names.LABEL_JOB_NUMBER, pod.metadata.name)
    worker = pod.metadata.annotations.get(names.COMPLETION_INDEX, "0")
    return place.logs / (f"{number}.log" if worker == "0" else f"{number}-{worker}.log")


def _path(pattern: str, *, pod: LocalPod, known: Mapping[str, str], place: Place) -> Path:
    """A file name with Slurm's placeholders, such as `%j` for the job's number."""
    labels = pod.metadata.labels
    called = pod.metadata.annotations.get(names.DISPLAY_NAME) or labels.get(names.LABEL_JOB, "")
    values = {
        "%": "%",
        "j": labels.get(names.LABEL_JOB_NUMBER, ""),
        "A": known.get(names.ENV_ARRAY_JOB_ID) or labels.get(names.LABEL_JOB_NUMBER, ""),
        "x": called.replace("/", "-"),
        "a": known.get(names.ENV_TASK_ID, ""),
        "u": place.user,
        "N": place.node,
    }
    filled = _PLACEHOLDER.sub(lambda match: values[match[1]], pattern)
    return Path(pod.spec.containers[0].working_dir or place.home) / filled
