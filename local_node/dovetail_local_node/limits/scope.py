"""Gives the local node a delegated cgroup of its own, by a scope of systemd.

An ordinary user owns no cgroup at login. systemd hands one out: `systemd-run --user --scope` with `Delegate=yes`. The
user's systemd ends when the user logs out, with all its scopes, unless lingering is on; jobs must not end so.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Set in a scope's environment, so that a local node never looks for a second one.
ENTERED: Final = "DOVETAIL_LOCAL_NODE_SCOPE"
_PROBE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Systemd:
    """What is known of this machine's systemd."""

    user: str
    is_root: bool
    environ: Mapping[str, str]
    running: Path = Path("/run/systemd/system")
    lingering: Path = Path("/var/lib/systemd/linger")

    def command(self) -> list[str] | str:
        """The words that start a program in a scope; or why there are none, empty where there is no systemd."""
        program = shutil.which("systemd-run", path=self.environ.get("PATH"))
        if program is None or not self.running.exists() or ENTERED in self.environ:
            return ""
        if not self.is_root and not (self.lingering / self.user).exists():
            return (
                "systemd would end jobs when you log out; allow them to stay with `loginctl enable-linger`, then "
                "gflowd down and gflowd up"
            )
        manager = [] if self.is_root else ["--user"]
        words = [program, *manager, "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--"]
        return _problem(words, environ=self.environ) or words

    def enter(self) -> str:
        """Run this program again in a scope; return why that is not possible, empty without systemd."""
        words = self.command()
        if not isinstance(words, str):
            os.execve(words[0], [*words, *sys.orig_argv], {**self.environ, ENTERED: "1"})  # noqa: S606 - this program
        return words


def _problem(words: list[str], *, environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [*words, "true"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False, env=dict(environ)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"systemd-run: {error}"
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return "" if done.returncode == 0 else f"systemd-run: {said[0]}"
