"""Previews of changes: what was shown, for whom, and of which version of the job. Pure.

A change is carried out by the id of its preview alone, so that its arguments are those that were shown.

PreviewError  the id cannot be used
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dovetail_cli.submit.manifest import Submission
from dovetail_cli.ui.errors import CommandError

Kind = Literal["submit", "cancel", "change"]
SECONDS: Final = 600.0
# An agent that previews without end takes no more memory than these.
_MOST: Final = 100


class PreviewError(CommandError):
    """An id that is unknown, used, expired, or of something else."""

    def __init__(self, identifier: str, *, problem: str, kind: Kind) -> None:
        super().__init__(f'preview_id "{identifier}": {problem}; preview_{kind} gives a new one')


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One change that was shown and not carried out yet.

    kind              what it does
    caller            the user, as the API server calls them
    namespace         the namespace of the job
    submission        what is submitted; None of a change to a job that exists
    manifest          the manifest that was shown; empty of a change to a job that exists
    may_wait          whether the job is queued although no node could ever run it
    name              the name of the job that is changed
    uid               its UID
    resource_version  its version that was shown
    patch             the change of its spec
    """

    kind: Kind
    caller: str
    namespace: str
    submission: Submission | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)
    may_wait: bool = False
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    patch: Mapping[str, Any] = field(default_factory=dict)


class Previews:
    """The previews of one session, each for one use within `SECONDS`."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[float, Preview]] = {}

    def keep(self, preview: Preview) -> str:
        """Keep it, and return its id."""
        if len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        identifier = secrets.token_hex(8)
        self._kept[identifier] = (self._clock() + SECONDS, preview)
        return identifier

    def take(self, identifier: str, *, kind: Kind, caller: str) -> Preview:
        """The preview, which cannot be taken again. Raises `PreviewError`."""
        until, found = self._kept.get(identifier, (0.0, None))
        if found is None:
            raise PreviewError(identifier, problem="there is no such preview, or it was used", kind=kind)
        if found.kind != kind:
            raise PreviewError(identifier, problem=f"it is of {found.kind}_job", kind=kind)
        del self._kept[identifier]
        if self._clock() > until:
            raise PreviewError(identifier, problem=f"it is older than {SECONDS / 60:g} minutes", kind=kind)
        if found.caller != caller:
            raise PreviewError(identifier, problem=f"it was for {found.caller}, and you are {caller}", kind=kind)
        return found
