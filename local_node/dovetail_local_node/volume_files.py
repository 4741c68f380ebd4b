"""Makes the folders of a pod's volumes, for their user alone.

Their files are those of ConfigMaps and Secrets, as they are when the pod starts, and fields of the pod as it changes.

A module of its own: it writes the files, where `volumes` is pure and `pod_life` knows only their folder.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from dovetail_local_node import volumes
from dovetail_local_node.admission import Refusal
from dovetail_local_node.pod_object import LocalPod
from dovetail_local_node.volumes import File, Source

_FOLDER_MODE: Final = 0o700
_OWNERS: Final = 0o700
_READABLE: Final = 0o600

Read = Callable[[Source], Awaitable[Mapping[str, bytes] | None]]


async def fill(pod: LocalPod, *, folder: Path, read: Read) -> Refusal | None:
    """Make the folders below `folder`, which is in the folder of the run.

    `read` returns the values of a source's object, None if there is none. Raises `OSError`.
    """
    for mount, volume in volumes.mounted(pod):
        for path in (folder.parent, folder, folder / volume.name):
            path.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
        if volume.empty_dir is not None:
            (folder / volume.name / mount.sub_path).mkdir(parents=True, exist_ok=True)
    for source in volumes.sources(pod):
        found = await read(source)
        if found is None and not source.files.optional:
            return _refused(source, problem=f"{source} is not there")
        try:
            files = volumes.files_of(source, contents=found or {})
        except KeyError as error:
            return _refused(source, problem=f"{source} has no key {error.args[0]}")
        for file in files:
            _write(file, folder=folder / source.volume)
    return None


def show_fields(pod: LocalPod, *, folder: Path, address: str) -> None:
    """Bring the files that show fields of the pod up to date, each at once. Raises `OSError`."""
    for volume, files in volumes.fields(pod, address=address).items():
        for file in files:
            path = folder / volume / file.path
            if not path.exists() or path.read_bytes() != file.data:
                _write(file, folder=folder / volume)


def _write(file: File, *, folder: Path) -> None:
    path = folder / file.path
    if not path.resolve().is_relative_to(folder.resolve()):
        raise OSError(0, "it leaves its volume", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A reader sees the earlier file or the whole new one.
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode & _OWNERS | _READABLE)
    with os.fdopen(handle, "wb") as opened:
        opened.write(file.data)
    unfinished.replace(path)


def _refused(source: Source, *, problem: str) -> Refusal:
    return Refusal(reason="NoVolume", message=f"Volume {source.volume} cannot be used: {problem}.")
