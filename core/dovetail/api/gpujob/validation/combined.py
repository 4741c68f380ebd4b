"""All rules on the spec of a GPUJob as one CEL rule at its root, which most writes of the status do not evaluate. Pure.

The API server evaluates a CRD's rules at each write, also of a status, and a look into a spec costs by the number of
its fields. One rule at the root sees the status and the version before: a write that changes the status is one of the
status subresource, which leaves the spec as it is, so all rules on it hold. The main resource never changes a status.

Only fields are compared whose equality the API server knows: it finds two equal times or optional values without a
value unequal, and cannot compare whole specs. A write that none of them shows to be one of the status is evaluated.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

Rule = dict[str, str]

_COMPARED: Final = ("phase", "reason", "message", "workersActive", "workersReady")
_BEFORE: Final = "oldSelf.value().status"


def _differs(field: str) -> str:
    """Whether a field of both statuses differs. The size of a value of a dynamic type counts as none."""
    both = f"has(self.status.{field}) && has({_BEFORE}.{field})"
    return f"({both} && dyn(self.status).{field} != dyn({_BEFORE}).{field})"


# A field that comes or goes makes another number of fields.
_IS_OF_THE_STATUS: Final = (
    f"oldSelf.hasValue() && has(self.status) && (!has({_BEFORE}) || size(dyn(self.status)) != size(dyn({_BEFORE})) || "
    f"{' || '.join(map(_differs, _COMPARED))})"
)
# Lists of one element bind names, because each lookup costs. A new job is compared with itself.
_OLD: Final = "[oldSelf.hasValue() ? oldSelf.value().spec : self.spec]"


def combined(*, whole: Sequence[Rule], spec: Sequence[Rule]) -> dict[str, Any]:
    """The rule for rules of the root and of the spec. It answers with the sentence of the first that is broken."""
    rules = [*whole, *({key: _below_spec(text) for key, text in rule.items()} for rule in spec)]
    kept = " && ".join(f"({_bound(rule['rule'])})" for rule in rules)
    # What compares with the version before comes last: a new job breaks none of these.
    rules.sort(key=lambda rule: "oldSelf" in rule["rule"])
    return {
        "rule": f"{_IS_OF_THE_STATUS} || [self.spec].all(spec, {_OLD}.all(old, {kept}))",
        "messageExpression": "".join(f"!({_said(rule['rule'])}) ? {_sentence(rule)} : " for rule in rules) + "''",
        "message": "the spec breaks a rule of its fields",
        "fieldPath": ".spec",
        "optionalOldSelf": True,
    }


def _below_spec(expression: str) -> str:
    return re.sub(r"\b(self|oldSelf)[.]", r"\1.spec.", expression)


def _bound(expression: str) -> str:
    """Of the parts of `self` alone, the API server knows how large they may be; whether they are there has no size."""
    expression = expression.replace("oldSelf.spec.", "old.").replace("has(self.spec.", "has(spec.")
    return re.sub(r"\boldSelf\b", "oldSelf.orValue(self)", expression)


def _said(expression: str) -> str:
    """The API server evaluates a `messageExpression` with the version before itself and not as an optional value."""
    return re.sub(r"\boldSelf\b", "dyn(oldSelf)", expression)


def _sentence(rule: Rule) -> str:
    if "messageExpression" in rule:
        return f"({_said(rule['messageExpression'])})"
    return "'" + rule["message"].replace("\\", "\\\\").replace("'", "\\'") + "'"
