"""Changes of a profile by `dovetail config set` and `unset`. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from dovetail_cli.submit.profiles.profile import KEYS, Profile, decode, encode
from dovetail_cli.ui.errors import UsageError

_WORDS: Final = {"true": True, "false": False}
_EXAMPLES: Final = {"env": "LR 0.1", "node-selector": "disk nvme"}


def with_value(profile: Profile, *, key: str, values: Sequence[str]) -> Profile:
    """The profile with these values of a key or entry, such as `env.LR`.

    Raises `UsageError`.
    """
    name, entry = _split(key)
    if KEYS[name].has_names and entry is None:
        raise UsageError(f'"{key}" holds names and values: set one of them, such as {name}.{_EXAMPLES[name]}')
    if KEYS[name].as_type != list[str] and len(values) != 1:
        raise UsageError(f"{key}: {len(values)} values; write one, in quotes if it has blanks")
    table = encode(profile)
    if entry is not None:
        table[name] = {**table.get(name, {}), entry: values[0]}
    else:
        table[name] = _typed(name, values=values)
    return decode(table, where="dovetail config set")


def without(profile: Profile, *, key: str) -> Profile:
    """The profile without a key or entry, such as `env.LR`.

    Raises `UsageError` if it is not set.
    """
    name, entry = _split(key)
    table = encode(profile)
    if name not in table or (entry is not None and entry not in table[name]):
        raise UsageError(f'"{key}" is not set; set are {", ".join(entries_of(profile)) or "none"}')
    if entry is not None:
        del table[name][entry]
    if entry is None or not table[name]:
        del table[name]
    return decode(table, where="dovetail config unset")


def entries_of(profile: Profile) -> dict[str, str]:
    """The values that are set as `config set` takes them, each entry of a table by itself."""
    found: dict[str, str] = {}
    for name, value in encode(profile).items():
        if KEYS[name].has_names:
            found |= {f"{name}.{entry}": text for entry, text in value.items()}
        else:
            found[name] = _as_words(value)
    return found


def _split(key: str) -> tuple[str, str | None]:
    name, dot, entry = key.partition(".")
    if name not in KEYS:
        raise UsageError(f'no key "{key}"; allowed are {", ".join(KEYS)}, and entries such as env.LR')
    if dot and (not entry or not KEYS[name].has_names):
        tables = [f"{each}.NAME" for each, kind in KEYS.items() if kind.has_names]
        raise UsageError(f'no key "{key}"; entries of a table are {" and ".join(tables)}')
    return name, entry if dot else None


def _as_words(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _typed(name: str, *, values: Sequence[str]) -> Any:
    kind = KEYS[name].as_type
    if kind == list[str]:
        return list(values)
    return values[0] if kind is str else _WORDS.get(values[0].lower(), values[0])
