"""The seat of a guest's pod: which worker of which GPUJob it is. Pure.

The operator writes it when it opens the pod's gate, and admission accepts it from no one else.
"""

from dataclasses import dataclass

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.formats.quantities import read_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The worker with this index of the GPUJob with this UID."""

    job_uid: str
    worker: int


def seat_of(pod: Pod) -> Seat | None:
    """The pod's seat; None for a pod that is no guest's, and for one whose gate is closed."""
    text = pod.metadata.annotations.get(names.SEAT)
    if text is None:
        return None
    uid, _, index = text.partition("/")
    worker = read_whole(index, otherwise=-1)
    return Seat(job_uid=uid, worker=worker) if uid and worker >= 0 else None


def text_of(seat: Seat) -> str:
    """The seat as its annotation has it."""
    return f"{seat.job_uid}/{seat.worker}"
