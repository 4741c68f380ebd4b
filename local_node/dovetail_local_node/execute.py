"""Turns into the process of a job: `python -I -S execute.py FOLDER UMASK`, the umask as an octal number.

It runs between the shim and the job, so that neither the shim nor Python sees the job's environment, which may hold
secrets and settings such as LD_PRELOAD. It enters the job's cgroups, by which the kernel limits the job. It imports
nothing but the standard library.

A module of its own: a script that Python runs as a file.
"""

import _signal  # type: ignore[import-not-found] # the module of the interpreter: `signal` takes 4 ms to import
import os
import sys
from typing import NoReturn

NOT_FOUND = 127
NOT_EXECUTABLE = 126
# A program inherits what is ignored, and one in a container ignores nothing. Python ignores the first two, so that
# `yes | head -1` would report an error, and `nohup gflowd up &` the others, which no trap of a shell would change.
DEFAULT_SIGNALS = (_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT)


def main(folder: str, *, umask: int) -> NoReturn:
    """Read `execute` in the folder, and execute what it says; exits 126 or 127 if that is not possible."""
    with open(os.path.join(folder, "execute"), "rb") as file:  # noqa: PTH118, PTH123 - pathlib takes 5 ms to import
        directory, groups, count, *rest = file.read().split(b"\0")
    joined, rest = rest[: int(groups)], rest[int(groups) :]
    words, environment = rest[: int(count)], rest[int(count) :]
    try:
        os.chdir(directory)
    except OSError as error:
        _end(folder, error=error, what=directory)
    for group in joined:
        _join(group, folder=folder)
    os.umask(umask)
    for number in DEFAULT_SIGNALS:
        _signal.signal(number, _signal.SIG_DFL)
    if not words[0]:
        _end(folder, error=FileNotFoundError(0, "its first word, the program, is empty"), what=b"command")
    try:
        os.execvpe(words[0], words, dict(entry.split(b"=", 1) for entry in environment))  # noqa: S606 - its purpose
    except OSError as error:
        _end(folder, error=error, what=words[0])


def _join(group: bytes, *, folder: str) -> None:
    """Enter a cgroup. The shim stays outside: it survives to write down how the job ended."""
    file = os.path.join(group, b"cgroup.procs")  # noqa: PTH118 - as above
    try:
        with open(file, "wb", buffering=0) as processes:  # noqa: PTH123 - as above
            processes.write(b"0")
    except OSError as error:
        _end(folder, error=error, what=file)


def _end(folder: str, *, error: OSError, what: bytes) -> NoReturn:
    problem = f"{os.fsdecode(what)}: {error.strerror}"
    sys.stderr.write(f"dovetail: {problem}\n")
    with open(os.path.join(folder, "problem"), "w", encoding="utf-8") as file:  # noqa: PTH118, PTH123 - as above
        file.write(problem)
    raise SystemExit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main(sys.argv[1], umask=int(sys.argv[2], base=8))
