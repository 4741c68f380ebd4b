"""The file with the user's profiles: read, checked as a whole, and written."""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail.decoding import UnreadableError, convert
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail_cli.submit.profiles.profile import Profile, decode, encode, shown
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError
from dovetail_cli.ui.files import read_text

# The profile of a user who has never chosen another.
DEFAULT: Final = "default"
ENV_PROFILE: Final = "DOVETAIL_PROFILE"
_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")
_TOP: Final = ("current", "profiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The user's profiles by name, and the one in use."""

    current: str = DEFAULT
    by_name: Mapping[str, Profile] = field(default_factory=dict)

    def chosen(self, name: str | None, *, environ: Mapping[str, str] = os.environ) -> tuple[str, Profile]:
        """The named profile, else that of `$DOVETAIL_PROFILE`, else the current one; and its name.

        Raises `MissingError` for one that does not exist; `default` is empty until something is set in it.
        """
        wanted = name or environ.get(ENV_PROFILE) or self.current
        if wanted not in self.by_name and wanted != DEFAULT:
            source = "" if name or not environ.get(ENV_PROFILE) else f"${ENV_PROFILE}: "
            raise MissingError(
                f'{source}no profile "{wanted}"; profiles are {", ".join(self.by_name) or DEFAULT} '
                f"(`dovetail config set --profile {wanted} image IMAGE` begins one)"
            )
        return wanted, self.by_name.get(wanted, Profile())


def location(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the file is: `$XDG_CONFIG_HOME/dovetail/config.yaml`, by default in `~/.config`."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "dovetail" / "config.yaml"


def load(path: Path) -> Profiles:
    """The profiles of the file; none if it does not exist.

    Raises `UsageError` for a value that is not allowed.
    """
    if not path.exists():
        return Profiles()
    document = _document(path)
    current, profiles = document.get("current", DEFAULT), document.get("profiles") or {}
    if not isinstance(current, str) or not current:
        raise UsageError(f"{path}: current {shown(current)}: write the name of a profile, such as {DEFAULT}")
    try:
        tables = convert(profiles, as_type=dict[str, Any])
    except UnreadableError as error:
        raise UsageError(
            f"{path}: profiles {shown(profiles)}: write names and profiles, such as {DEFAULT}: {{image: busybox}}"
        ) from error
    by_name = {name: decode(values, where=f'{path}: profile "{name}"') for name, values in tables.items()}
    return Profiles(current=current, by_name=by_name)


def change(name: str | None, *, edit: Callable[[Profile], Profile]) -> str:
    """Change a profile of the user's file, by `edit`; return the profile's name.

    A name that is given begins a profile that does not exist yet. Raises `UsageError` and `CommandError`.
    """
    path = location()
    before = load(path)
    chosen = before.chosen(None)[0] if name is None else _check_name(name)
    after = edit(before.by_name.get(chosen, Profile()))
    save(replace(before, by_name={**before.by_name, chosen: after}), path=path)
    return chosen


def use(name: str) -> None:
    """Make a profile the current one. Raises `MissingError` for one that does not exist."""
    path = location()
    before = load(path)
    save(replace(before, current=before.chosen(name)[0]), path=path)


def save(profiles: Profiles, *, path: Path) -> None:
    """Write the file in one step, readable by the user alone; comments in it are lost.

    Raises `CommandError`.
    """
    document = {
        "current": profiles.current,
        "profiles": {name: encode(profile) for name, profile in profiles.by_name.items()},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            fresh = Path(folder) / path.name
            fresh.touch(mode=0o600)
            fresh.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
            fresh.replace(path)
    except OSError as error:
        raise CommandError(f"{path}: the profile cannot be written: {error.strerror}") from error


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f'--profile "{name}": write up to 63 letters, digits, "-", "_" and ".", such as vision')
    return name


def _document(path: Path) -> dict[str, Any]:
    text = read_text(path)
    try:
        found = convert(load_yaml(text) or {}, as_type=dict[str, Any])
    except (YAMLTextError, UnreadableError) as error:
        why = " ".join(str(getattr(error, "problem", None) or error).split())
        raise UsageError(f"{path}: expected YAML with the keys {' and '.join(_TOP)} ({why})") from error
    if unknown := next((name for name in found if name not in _TOP), None):
        raise UsageError(f'{path}: unknown key "{unknown}"; allowed are {", ".join(_TOP)}')
    return found
