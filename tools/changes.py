"""What git says of the changes in a checkout. Without git, or without history, there is nothing to compare with."""

import subprocess
from pathlib import Path


def merge_base(folder: Path) -> str | None:
    """Return the commit at which the branch left main.

    None on main itself, without a branch main, and without git.
    """
    head = git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    for main in ("origin/main", "main"):
        base = git(folder, "merge-base", "HEAD", main)
        if base and base != head:
            return base
    return None


def changed_files(folder: Path, *, base: str) -> frozenset[str]:
    """Return the paths that differ from `base`, with those that are not committed or not yet known to git."""
    differ = git(folder, "diff", "--name-only", "--no-renames", "-z", base).split("\0")
    fresh = git(folder, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return frozenset(path for path in (*differ, *fresh) if path)


def git(folder: Path, *arguments: str) -> str:
    """Return git's output; empty if git fails or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
