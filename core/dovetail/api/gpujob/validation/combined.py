"""All rules on the spec of a GPUJob as one CEL rule at its root, which a write of the status does not evaluate. Pure.

The API server evaluates a CRD's rules at each write, also of a status, and a look into a spec costs by the number of
its fields. One rule at the root sees the status and the version before: a write that changes the status is one of the
status subresource, which leaves the spec as it is, so all rules on it hold. The main resource never changes a status.

A write of something else, such as a label, leaves a spec alone that a later version of the rules would refuse.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

Rule = dict[str, str]

# A different number of fields ends the comparison early.
_IS_OF_THE_STATUS: Final = (
    "has(self.status) && (!has(oldSelf.value().status) || "
    "size(dyn(self.status)) != size(dyn(oldSelf.value().status)) || self.status != oldSelf.value().status)"
)
_LEAVES_THE_SPEC: Final = f"oldSelf.hasValue() && ({_IS_OF_THE_STATUS} || self.spec == oldSelf.value().spec)"
# Lists of one element bind names, because each lookup costs. A new job is compared with itself.
_OLD: Final = "[oldSelf.hasValue() ? oldSelf.value().spec : self.spec]"


def combined(*, whole: Sequence[Rule], spec: Sequence[Rule]) -> dict[str, Any]:
    """The rule for rules of the root and of the spec. It answers with the sentence of the first that is broken."""
    rules = [*whole, *({key: _below_spec(text) for key, text in rule.items()} for rule in spec)]
    kept = " && ".join(f"({_bound(rule['rule'])})" for rule in rules)
    # What compares with the version before comes last: a new job breaks none of these.
    rules.sort(key=lambda rule: "oldSelf" in rule["rule"])
    return {
        "rule": f"{_LEAVES_THE_SPEC} || [self.spec].all(spec, {_OLD}.all(old, {kept}))",
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
