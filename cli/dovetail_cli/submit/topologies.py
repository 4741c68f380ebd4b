"""The option `--topology`: the levels of the network that hold a job's workers together."""

import re
from typing import Final

from dovetail.api.gpujob import LEVEL_PATTERN, SubGroups, TopologySpec
from dovetail_cli.ui.errors import UsageError

_EXAMPLE: Final = "write required=LEVEL, preferred=LEVEL or group=SIZE:LEVEL, with commas between them"
_LEVEL: Final = re.compile(LEVEL_PATTERN)
_SIZE: Final = re.compile(r"[1-9][0-9]{0,3}")


def read(text: str | None, *, workers: int) -> TopologySpec | None:
    """The topology in a text such as `required=rack,group=4:nvlink`; None without one. Raises `UsageError`."""
    if text is None:
        return None
    said: dict[str, str] = {}
    for part in text.split(","):
        key, given, value = part.strip().partition("=")
        if not given or key not in {"required", "preferred", "group"} or key in said:
            raise UsageError(f'--topology "{text}": {_EXAMPLE}, such as required=rack')
        said[key] = value
    groups = _groups(said["group"], text=text, workers=workers) if "group" in said else None
    for name in (said.get("required"), said.get("preferred")):
        if name is not None:
            _check_level(name, text=text)
    return TopologySpec(required=said.get("required"), preferred=said.get("preferred"), sub_groups=groups)


def _groups(value: str, *, text: str, workers: int) -> SubGroups:
    size, _, level = value.partition(":")
    _check_level(level, text=text)
    if not _SIZE.fullmatch(size) or int(size) < 2 or workers % int(size):
        raise UsageError(
            f'--topology "{text}": the number of workers (--nodes), which is {workers}, must be a multiple of the '
            "group's size, such as --nodes 8 --topology group=4:nvlink"
        )
    return SubGroups(size=int(size), required=level)


def _check_level(name: str, *, text: str) -> None:
    if not _LEVEL.fullmatch(name) or len(name) > 63:
        raise UsageError(f'--topology "{text}": "{name}" is no name of a level, such as rack: {_EXAMPLE}')
