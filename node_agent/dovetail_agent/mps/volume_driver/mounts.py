"""Bind mounts below a root-owned folder, and a bounded tmpfs. The only module that mounts.

No symbolic link below that folder is followed: each component is opened from the one before. A bind mount has its final
flags from the first moment, on the host too: the kernel propagates a mount to its peers, but not a later change of its
flags. So each source is bound to a private folder first, gets its flags there, and is bound to its target from there.

MountError   a target cannot be mounted or unmounted: names the target and the reason
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_RDONLY: Final = 0x1
_NOSUID: Final = 0x2
_NODEV: Final = 0x4
_NOEXEC: Final = 0x8
_REMOUNT: Final = 0x20
_BIND: Final = 0x1000
_UMOUNT_NOFOLLOW: Final = 0x8
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class MountError(Exception):
    """A mount failed. The text is one sentence for people."""

    def __init__(self, target: Path, *, problem: str) -> None:
        super().__init__(f"{target}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What is at a path: a mount point or not, the folder that it shows, read-only or not.

    `folder` is the pair of device and inode.
    """

    mounted: bool
    folder: tuple[int, int]
    read_only: bool


class BindMounts:
    """Bind mounts at targets relative to `root`.

    `staging` is an empty folder of ours on a mount without peers. Make one call at a time: each uses `staging`.
    """

    def __init__(self, *, root: Path, staging: Path) -> None:
        self._root = root
        self._staging = staging

    def bind(self, source: Path, *, target: PurePosixPath, read_only: bool) -> None:
        """Mount the folder `source` at `target`, whose parent exists. Idempotent.

        The mount has nodev, noexec and nosuid. Raises `MountError`.
        """
        try:
            with self._opened(target.parent) as parent:
                self._bind(source, parent=parent, name=target.name, read_only=read_only)
                seen = _look(parent, name=target.name)
        except OSError as error:
            raise self._error(target, error=error) from error
        if seen is None or not seen.mounted or seen.read_only != read_only:
            raise MountError(self._root / target, problem=f"it was mounted, but is not as wanted: {seen}")

    def unbind(self, target: PurePosixPath) -> None:
        """Remove `target` with everything that is mounted there. Idempotent.

        Raises `MountError`, also if files would be lost.
        """
        try:
            with self._opened(target.parent) as parent:
                while (seen := _look(parent, name=target.name)) is not None and seen.mounted:
                    _unmount(f"/proc/self/fd/{parent}/{target.name}")
                if seen is not None:
                    os.rmdir(target.name, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error(target, error=error) from error

    def _bind(self, source: Path, *, parent: int, name: str, read_only: bool) -> None:
        wanted = os.stat(source)  # noqa: PTH116 - the pair of numbers, as _look has it
        while (seen := _look(parent, name=name)) is not None and seen.mounted:
            if (seen.folder, seen.read_only) == ((wanted.st_dev, wanted.st_ino), read_only):
                return
            _unmount(f"/proc/self/fd/{parent}/{name}")  # its source no longer exists, or the flags differ
        if seen is None:
            os.mkdir(name, 0o750, dir_fd=parent)
        at = os.open(name, _FOLDER, dir_fd=parent)
        try:
            self._bind_at(source, at=f"/proc/self/fd/{at}", read_only=read_only)
        finally:
            os.close(at)

    def _bind_at(self, source: Path, *, at: str, read_only: bool) -> None:
        staging = str(self._staging)
        _mount(str(source), target=staging, flags=_BIND)
        try:
            flags = _REMOUNT | _BIND | _NOSUID | _NODEV | _NOEXEC | (_RDONLY if read_only else 0)
            _mount(None, target=staging, flags=flags)
            _mount(staging, target=at, flags=_BIND)
        finally:
            _unmount(staging)

    @contextmanager
    def _opened(self, folder: PurePosixPath) -> Iterator[int]:
        """Open a folder below the root, component by component."""
        opened = os.open(self._root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in folder.parts:
                deeper = os.open(part, _FOLDER, dir_fd=opened)
                os.close(opened)
                opened = deeper
            yield opened
        finally:
            os.close(opened)

    def _error(self, target: PurePosixPath, *, error: OSError) -> MountError:
        return MountError(self._root / target, problem=error.strerror or str(error))


def keep_tmpfs(folder: Path, *, size: str) -> None:
    """Mount a tmpfs that every user can write, or resize the existing one.

    `size` has tmpfs' own format: bytes with k, m or g, or a percentage of the machine's memory. Raises `MountError`.
    """
    try:
        parent = os.open(folder.parent, _FOLDER)
        try:
            seen = _look(parent, name=folder.name)
            flags = _NOSUID | _NODEV | _NOEXEC | (_REMOUNT if seen is not None and seen.mounted else 0)
            if seen is None:
                os.mkdir(folder.name, dir_fd=parent)
            _mount(
                "tmpfs", target=f"/proc/self/fd/{parent}/{folder.name}", flags=flags, options=f"mode=1777,size={size}"
            )
        finally:
            os.close(parent)
    except OSError as error:
        raise MountError(folder, problem=error.strerror or str(error)) from error


def _look(parent: int, *, name: str) -> _Seen | None:
    try:
        at = os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(at)
        return _Seen(
            mounted=_mount_id(at) != _mount_id(parent),
            folder=(found.st_dev, found.st_ino),
            read_only=bool(os.fstatvfs(at).f_flag & os.ST_RDONLY),
        )
    finally:
        os.close(at)


def _mount_id(opened: int) -> str:
    """The kernel's ID of the mount of an open file.

    A bind of the same file system has another ID.
    """
    lines = Path(f"/proc/self/fdinfo/{opened}").read_text(encoding="ascii").splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))


def _mount(source: str | None, *, target: str, flags: int, options: str | None = None) -> None:
    """Mount a tmpfs with `options`, or bind an existing folder without them."""
    of = None if source is None else os.fsencode(source)
    kind, said = (None, None) if options is None else (b"tmpfs", options.encode())
    _checked(_LIBC.mount(of, os.fsencode(target), kind, ctypes.c_ulong(flags), said), path=target)


def _unmount(target: str) -> None:
    _checked(_LIBC.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW), path=target)


def _checked(code: int, *, path: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
