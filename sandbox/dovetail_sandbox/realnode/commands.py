"""Runs other programs and waits for them. The only module that does."""

import subprocess
from collections.abc import Sequence
from typing import BinaryIO

from dovetail_sandbox.realnode.errors import CommandError


def call(*argv: object, stdin: str | BinaryIO | None = None, timeout_s: float = 120.0) -> str:
    """Run a program and return its standard output.

    Raises:
        CommandError: its exit status is not 0, or it did not end in time.
    """
    words = [str(word) for word in argv]
    text = stdin if isinstance(stdin, str) else None
    stream = None if isinstance(stdin, str) else stdin or subprocess.DEVNULL
    try:
        done = subprocess.run(
            words,
            input=text,
            stdin=None if text is not None else stream,
            capture_output=True,
            check=False,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as late:
        raise CommandError(words, output=f"no end after {timeout_s:g} s") from late
    if done.returncode:
        raise CommandError(words, output=done.stderr or done.stdout)
    return done.stdout


def succeeds(argv: Sequence[str]) -> bool:
    """Whether the program ends with status 0."""
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
