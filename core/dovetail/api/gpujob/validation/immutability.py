"""CEL rules of the GPUJob CRD on what stays as it was given. Data only.

A rule's look into an object costs the API server by the number of fields that the object may have, and a field's own
rules are evaluated at every write of a status too. So values are compared at the fields themselves, and the spec, which
has many fields, is asked no more than which of them are there (`combined`).
"""

from collections.abc import Sequence
from typing import Any, Final

from dovetail.api.gpujob import GPUJobSpec
from dovetail.api.gpujob.fields import fields_of

Rule = dict[str, str]

_FIXED: Final = "cannot be changed: delete the job and submit it again"
_STAYS: Final = tuple(name for name, field in fields_of(GPUJobSpec).items() if field.stays)
_INDEXES: Final = "array.indexes cannot be changed except the number behind %: delete the job and submit it again"
_SWEEP: Final = "the parameters of a sweep cannot be changed: delete the job and submit it again"
# Arrays and sweeps have fields that may change, so their rules compare only the others.
_ARRAY: Final[Rule] = {"rule": "self.indexes.split('%')[0] == oldSelf.indexes.split('%')[0]", "message": _INDEXES}
_PARAMETERS: Final[Rule] = {
    "rule": "self.parameters == oldSelf.parameters && self.combine == oldSelf.combine && "
    "has(self.nameTemplate) == has(oldSelf.nameTemplate) && "
    "(!has(self.nameTemplate) || self.nameTemplate == oldSelf.nameTemplate)",
    "message": _SWEEP,
}
_LIMITS: Final = ("activeDeadlineSeconds", "maximumExecutionTimeSeconds")
# An elastic job restarts with another number of workers. The tasks of an array keep that of their template.
_SCALES: Final = "self.workers == oldSelf.workers || (has(self.minWorkers) && !has(self.array) && !has(self.sweep))"
_NOT_ELASTIC: Final = (
    "workers cannot be changed without minWorkers, and not in an array or a sweep: delete the job and submit it again"
)
_BACKFILLED: Final = (
    "may only be lowered while the job runs, and can be raised or removed once it waits again: with this limit the job "
    "started on nodes that are kept for others"
)


def add_to_whole(schema: dict[str, Any]) -> None:
    """Put the rules about spec and status together into the schema of a GPUJob."""
    for limit in _LIMITS:
        _add(schema, rule=_only_shrinks(limit))


def _only_shrinks(limit: str) -> Rule:
    """A limit that let a job in by backfill: a longer run would move the reservation that it passed."""
    new, old = f"self.spec.{limit}", f"oldSelf.spec.{limit}"
    return {
        "rule": "!has(oldSelf.status) || !has(oldSelf.status.placement) || "
        f"!has(oldSelf.status.placement.limitSeconds) || !has({old}) || (has({new}) && {new} <= {old})",
        "message": f"spec.{limit} {_BACKFILLED}",
    }


def add_to(spec: dict[str, Any]) -> None:
    """Put the rules into the schema of a GPUJob's spec, which has its other rules by now."""
    fields = spec["properties"]
    for name in _STAYS:
        _add(fields[name], rule={"rule": "self == oldSelf", "message": f"{name} {_FIXED}"})
    _add(
        fields["cancel"], rule={"rule": "!oldSelf || self", "message": "cancel cannot be undone: submit the job again"}
    )
    _add(fields["array"], rule=_ARRAY)
    _add(fields["sweep"], rule=_PARAMETERS)
    _add(spec, rule=_same_fields([name for name in _STAYS if "default" not in fields[name]]))


def _add(schema: dict[str, Any], *, rule: Rule) -> None:
    schema["x-kubernetes-validations"] = [*schema.get("x-kubernetes-validations", ()), rule]


def _same_fields(optional: Sequence[str]) -> Rule:
    """No field that stays comes or goes, and only an elastic job is scaled.

    Which of gpu and resources is there follows from one of them.
    """
    said = {name: f"{name} {_FIXED}" for name in optional if name != "gpu"} | {"array": _INDEXES, "sweep": _SWEEP}
    same = {name: f"has(self.{name}) == has(oldSelf.{name})" for name in said}
    said, same = said | {"workers": _NOT_ELASTIC}, same | {"workers": f"({_SCALES})"}
    sentences = "".join(f"!({same[name]}) ? '{sentence}' : " for name, sentence in said.items())
    return {"rule": " && ".join(same.values()), "messageExpression": f"{sentences}''"}
