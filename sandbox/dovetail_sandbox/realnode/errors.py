"""The errors of a real node.

SandboxError
└── RealNodeError
    ├── NotCapableError     this machine cannot run one, and why
    ├── CommandError        a program failed
    └── NodeFailedError     the node did not start, or ended
"""

from collections.abc import Sequence
from pathlib import Path

from dovetail_sandbox.errors import SandboxError

LOG_TAIL_LINES = 15


class RealNodeError(SandboxError):
    """Any failure of a real node; its text is for people."""


class NotCapableError(RealNodeError):
    """The machine lacks something; the text names it and the fix."""


class CommandError(RealNodeError):
    """A program ended with an error."""

    def __init__(self, argv: Sequence[str], *, output: str) -> None:
        super().__init__(f"`{' '.join(argv)}` failed: {output.strip() or 'it said nothing'}")


class NodeFailedError(RealNodeError):
    """The node has failed; the text ends with the last lines of the most relevant log."""

    def __init__(self, what: str, *, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:] if log.exists() else []
        super().__init__("\n".join([f"{what}; the end of {log.name}:", *lines]))
