"""CEL rules with a sentence that replace `pattern` and `format` of a spec's texts. Data only.

The API server then answers a wrong text with what is allowed, not with an expression.
"""

from typing import Any, Final

Schema = dict[str, Any]

# Only years and offsets that Python can compute with: the API server also accepts the year 0 and an offset of 99 hours.
TIME: Final = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
# As requests name models, and with the slash that some drivers write.
MODEL_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9 ./_-]{0,127}$"
# Every time of a day in minutes; a window that ends with the day ends at 00:00.
TIME_OF_DAY: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"
# As the IANA database names zones. Whether there is one of that name, the operator says.
TIME_ZONE: Final = r"^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$"
DEVICE_MEMORY: Final = r"^(0|[1-9][0-9]{0,5}(\.[0-9]{1,3})?(Mi|Gi|Ti|M|G|T))$"

_SENTENCES: Final = {
    DEVICE_MEMORY: "must be an amount of device memory with a unit (Mi, Gi, Ti, M, G or T), such as 640Gi or 1.5Ti",
    TIME_OF_DAY: "must be a time of day in hours and minutes, such as 08:00",
    TIME_ZONE: "must be the name of a time zone, such as Europe/Berlin or UTC",
    MODEL_NAME: "must be named as requests name models, by up to 128 letters, digits, spaces, '.', '/', '_' and '-', "
    "such as A100",
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "must be of a-z, 0-9 and '-' with a letter or a digit at both ends, "
    "such as team-a",
    "^[A-Za-z_][A-Za-z0-9_]*$": "must be a variable's name of letters, digits and '_', such as learning_rate",
    r"^[a-z0-9.-]{1,128}/[A-Za-z0-9._-]{1,63}$": "must be a controller's name with its domain, such as "
    "example.com/controller",
    TIME: "must be a time with its zone, such as 2026-12-01T08:00:00Z or 2026-12-01T08:00:00+01:00, of the years "
    "1000 to 2999",
}
# Of a text in a list, which has no name of its own.
_NAMED: Final = {"namespaces": "a namespace", "pools": "a pool"}
# The longest that `TIME` takes.
_TIME_LENGTH: Final = 32


def sentence_for(pattern: str) -> str:
    """What a text with this pattern must be, as a clause: `must be an amount of device memory with …`."""
    return _SENTENCES.get(pattern, f"must match {pattern}")


def matches(text: str, *, pattern: str) -> str:
    """The CEL expression for whether `text`, itself an expression, matches `pattern`."""
    quote = '"' if "'" in pattern else "'"
    return f"{text}.matches(r{quote}{pattern}{quote})"


def is_time(text: str) -> str:
    """The CEL expression for whether `text`, itself an expression, is a time that exists."""
    return f"{matches(text, pattern=TIME)} && !format.datetime().validate({text}).hasValue()"


def in_order(earlier: str, *, later: str) -> str:
    """The CEL expression for whether two times are in order; true for texts that are not times."""
    return f"!({is_time(earlier)}) || !({is_time(later)}) || timestamp({earlier}) < timestamp({later})"


def add_rules(schema: Schema, *, name: str = "") -> None:
    """Put rules into `schema` and all schemas below it, for the patterns that have a sentence."""
    for field, below in schema.get("properties", {}).items():
        add_rules(below, name=field)
    if isinstance(below := schema.get("items"), dict):
        add_rules(below, name=_NAMED.get(name, name))
    if (keys := schema.pop("propertyNames", None)) is not None:
        # The API server knows no `propertyNames`.
        rule = f"self.all(key, {matches('key', pattern=keys['pattern'])})"
        message = f"{name} {sentence_for(keys['pattern'])}"
        schema.setdefault("x-kubernetes-validations", []).append({"rule": rule, "message": message})
    if (sentence := _SENTENCES.get(schema.get("pattern", ""))) is None:
        return
    pattern = schema.pop("pattern")
    rule = matches("self", pattern=pattern)
    if pattern == TIME:
        # With `format` the API server would report the error twice, and could not evaluate the other rules.
        schema.pop("format")
        schema["maxLength"] = _TIME_LENGTH
        rule = is_time("self")
    schema.setdefault("x-kubernetes-validations", []).append({"rule": rule, "message": f"{name} {sentence}"})
