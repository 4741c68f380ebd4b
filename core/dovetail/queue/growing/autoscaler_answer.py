"""What the cluster autoscaler says of a ProvisioningRequest. Pure.

The conditions are those of autoscaling.x-k8s.io/v1. Failed, BookingExpired and CapacityRevoked are final: the
autoscaler keeps or adds no node for the request any more, so a new request is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dovetail.api.builtin import Condition

_FINAL: Final = ("Failed", "CapacityRevoked", "BookingExpired")
_MOST_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How far the autoscaler is, and in one sentence why it does not serve the request; empty if it may."""

    state: Literal["", "Accepted", "Provisioned"] = ""
    refusal: str = ""


def answer_of(conditions: Sequence[Condition]) -> Answer:
    """The answer in the conditions of a request."""
    true = {each.type: each for each in conditions if each.status == "True"}
    refused = next((true[name] for name in _FINAL if name in true), None)
    if refused is not None:
        return Answer(refusal=_in_words(refused))
    if "Provisioned" in true:
        return Answer(state="Provisioned")
    return Answer(state="Accepted" if "Accepted" in true else "")


def _in_words(condition: Condition) -> str:
    """The condition in one short line: another program wrote its message."""
    said = " ".join(condition.message.split()).rstrip(".")
    text = f"{condition.type} ({condition.reason or 'no reason'})" + (f": {said}" if said else "")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
