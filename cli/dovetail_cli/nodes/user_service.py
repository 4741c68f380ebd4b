"""The queue of this machine as a service of the user's systemd, which starts it at boot."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dovetail_cli.ui.errors import CommandError, MissingError

NAME: Final = "dovetail-queue.service"
# `gflowd up` is done when everything is ready. What it starts belongs to the unit, which stays active.
_UNIT: Final = """\
[Unit]
Description=Dovetail: the GPU queue of this machine

[Service]
Type=oneshot
RemainAfterExit=yes
{environment}ExecStart={gflowd} up
ExecStop={gflowd} down
TimeoutStartSec=10min
TimeoutStopSec=2min
# The limits of jobs are cgroups below the unit's.
Delegate=yes

[Install]
WantedBy=default.target
"""
# What says where the queue and its programs are; a user's systemd does not read the shell's files.
_KEPT: Final = ("PATH", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
_INSTEAD: Final = "run `gflowd up` from your login script instead"
_LINGER: Final = "It runs from your login on. To start it at boot, once: loginctl enable-linger"


def unit(*, environ: Mapping[str, str], gflowd: str) -> str:
    """The unit's text, with `gflowd` as an absolute path."""
    kept = "".join(f"Environment={_quoted(f'{name}={environ[name]}')}\n" for name in _KEPT if name in environ)
    # systemd expands variables in commands, and not in values.
    return _UNIT.format(environment=kept, gflowd=_quoted(gflowd).replace("$", "$$"))


def text() -> str:
    """The unit of this installation. Raises `MissingError` without the program `gflowd`."""
    # Of the same installation, before another one on the PATH.
    own = Path(sys.executable).with_name("gflowd")
    found = str(own) if own.exists() else shutil.which("gflowd")
    if found is None:
        raise MissingError("there is no program gflowd in the folder of this Python or in your PATH")
    return unit(environ=os.environ, gflowd=found)


def install() -> str:
    """Write the unit and start it with each login; returns the sentence about it.

    Raises `CommandError`, and `MissingError` without systemd.
    """
    _check_systemd()
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text(), encoding="utf-8")
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", NAME)
    return f"{file} starts the queue of this machine, and did so now.\n{_LINGER}"


def remove() -> str:
    """Stop the unit and remove it; returns the sentence about it.

    Raises `CommandError`, and `MissingError` without a unit.
    """
    file = path()
    if not file.exists():
        raise MissingError(f"{file}: there is no such unit; gflowd service install writes it")
    try:
        _check_systemd()
    except MissingError:
        # Nothing has started the unit, and nothing will.
        (file.parent / "default.target.wants" / NAME).unlink(missing_ok=True)
        file.unlink()
        return f"{file} is removed."
    _systemctl("disable", "--now", NAME)
    file.unlink()
    _systemctl("daemon-reload")
    return f"{file} is removed, and the queue is down: `gflowd up` continues it."


def path() -> Path:
    """Where the unit is, whether it exists or not."""
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "systemd" / "user" / NAME


def _quoted(word: str) -> str:
    """A word as systemd reads it: quoted, with its specifiers taken as they are."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _check_systemd() -> None:
    if shutil.which("systemctl") is None:
        raise MissingError(f"this machine has no systemd: {_INSTEAD}")
    try:
        _systemctl("show-environment")
    except CommandError as error:
        raise MissingError(f"no systemd of your user runs here ({error}): {_INSTEAD}") from error


def _systemctl(*words: str) -> None:
    # `su` and cron do not set it, and the user's systemd may run all the same.
    environ = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ}
    done = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        raise CommandError(f"systemctl --user {' '.join(words)}: {' '.join(done.stderr.split()) or 'failed'}")
