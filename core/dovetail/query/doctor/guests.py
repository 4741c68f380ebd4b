"""Checks which kinds of other projects can wait in the queue here. Pure."""

from collections.abc import Iterator
from typing import Final

from dovetail.jobs.guests.kind import Kind
from dovetail.jobs.guests.registry import KINDS
from dovetail.query.doctor.findings import Finding, Unseen
from dovetail.query.doctor.picture import Picture

_CHECK: Final = "kinds"


def crd_of(kind: Kind) -> str:
    """The name of the kind's CRD; empty for a kind that every cluster has."""
    resource = kind.resource
    return f"{resource.plural}.{resource.group}" if "." in resource.group else ""


# What the reader has to look for.
CRDS: Final = tuple(crd for kind in KINDS if (crd := crd_of(kind)))


def judge(picture: Picture) -> Iterator[Finding]:
    """Which kinds the queue takes, and which rest because their CRD is missing.

    If CRDs cannot be read, the check of neighbours says so.
    """
    if isinstance(picture.neighbours, Unseen):
        return
    there = [kind.resource.kind for kind in KINDS if not (crd := crd_of(kind)) or crd in picture.neighbours]
    resting = [kind.resource.kind for kind in KINDS if kind.resource.kind not in there]
    message = f"{', '.join(there)} with the label dovetail.dev/queue wait in the queue (docs/kinds.md)"
    if resting:
        message += f"; {', '.join(resting)} would too, but their CRDs are not installed"
    yield Finding(level="ok", check=_CHECK, message=message)
