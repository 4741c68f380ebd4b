"""The checkout that a release is built from: committed as a whole, and dated by its last commit."""

import subprocess
from pathlib import Path

from tools.release.errors import ReleaseError


def check_clean(root: Path) -> None:
    """Raise `ReleaseError` if the checkout has a change that no commit has: a release is what a commit says."""
    changed = _git("status", "--porcelain", root=root).splitlines()
    if changed:
        others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise ReleaseError(f"{changed[0][3:]}{others} is not committed: commit or stash it")


def epoch(root: Path) -> int:
    """The date of the last commit, in seconds since 1970, for SOURCE_DATE_EPOCH. Raises `ReleaseError`."""
    return int(_git("log", "-1", "--format=%ct", root=root))


def _git(*words: str, root: Path) -> str:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {words[0]} in {root}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout
