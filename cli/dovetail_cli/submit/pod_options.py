"""gbatch's options about the pods: variables, volumes, labels of nodes, topology. Pure."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.gpujob import LEVEL_PATTERN, SubGroups, TopologySpec
from dovetail.pods.injection import OWN_VARIABLES
from dovetail_cli.ui.errors import UsageError

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LEVEL: Final = re.compile(LEVEL_PATTERN)
_GROUP_SIZE: Final = re.compile(r"[1-9][0-9]{0,3}")
_RULES: Final = "write required=LEVEL, preferred=LEVEL or group=SIZE:LEVEL, with commas between them"
_ACCESS: Final = {"": False, "rw": False, "ro": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A PersistentVolumeClaim at a path of the container."""

    claim: str
    path: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.claim}:{self.path}{':ro' if self.read_only else ''}"


def variables(texts: Sequence[str]) -> dict[str, str]:
    """The variables of `--env`, by name; of one that is given twice the last value counts.

    Raises `UsageError`.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name) or "\0" in value:
            raise UsageError(f'--env "{text}": write NAME=VALUE, such as --env LR=0.1')
        if name in OWN_VARIABLES:
            raise UsageError(f'--env "{text}": Dovetail sets {name} itself, for the devices that the job gets')
        found[name] = value
    return found


def volumes(texts: Sequence[str]) -> tuple[Volume, ...]:
    """The volumes of `--volume`. Raises `UsageError`."""
    found: list[Volume] = []
    for text in texts:
        volume = _volume(text)
        if volume.path in {each.path for each in found}:
            raise UsageError(f'--volume "{text}": two volumes cannot be at {volume.path}')
        found.append(volume)
    return tuple(found)


def _volume(text: str) -> Volume:
    claim, _, rest = text.partition(":")
    path, _, access = rest.partition(":")
    if not _OBJECT.fullmatch(claim) or not path.startswith("/") or path == "/" or access not in _ACCESS:
        raise UsageError(
            f'--volume "{text}": write the name of a PersistentVolumeClaim and a path, such as --volume data:/data, '
            "or data:/data:ro to read only"
        )
    return Volume(claim=claim, path=posixpath.normpath(path), read_only=_ACCESS[access])


def node_labels(texts: Sequence[str]) -> dict[str, str]:
    """The labels that `--node-selector` asks of a node, by key. Raises `UsageError`."""
    found: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise UsageError(f'--node-selector "{part}": write LABEL=VALUE, such as --node-selector disk=nvme')
        if found.setdefault(key, value) != value:
            raise UsageError(f'--node-selector "{part}": no node has two values of {key}; {key}={found[key]} is given')
    return found


def container_fields(*, env: Mapping[str, str], mounted: Sequence[Volume]) -> dict[str, Any]:
    """What variables and volumes add to a container."""
    fields: dict[str, Any] = {}
    if env:
        fields["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if mounted:
        names = _volume_names(mounted)
        fields["volumeMounts"] = [
            {"name": names[each.claim], "mountPath": each.path, **({"readOnly": True} if each.read_only else {})}
            for each in mounted
        ]
    return fields


def pod_fields(*, mounted: Sequence[Volume], selector: Mapping[str, str]) -> dict[str, Any]:
    """What volumes and nodes' labels add to a pod's spec."""
    fields: dict[str, Any] = {}
    if mounted:
        fields["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for claim, name in _volume_names(mounted).items()
        ]
    if selector:
        fields["nodeSelector"] = dict(selector)
    return fields


def _volume_names(mounted: Sequence[Volume]) -> dict[str, str]:
    """The volume's name in the pod by claim: a claim's own name may be too long for one."""
    claims = dict.fromkeys(each.claim for each in mounted)
    return {claim: f"volume-{at}" for at, claim in enumerate(claims)}


def topology(text: str | None, *, workers: int) -> TopologySpec | None:
    """The topology in a text such as `required=rack,group=4:nvlink`; None without one.

    Raises `UsageError`.
    """
    if text is None:
        return None
    said: dict[str, str] = {}
    for part in text.split(","):
        key, given, value = part.strip().partition("=")
        if not given or key not in {"required", "preferred", "group"} or key in said:
            raise UsageError(f'--topology "{text}": {_RULES}, such as required=rack')
        said[key] = value
    groups = _groups(said["group"], text=text, workers=workers) if "group" in said else None
    for name in (said.get("required"), said.get("preferred")):
        if name is not None:
            _check_level(name, text=text)
    return TopologySpec(required=said.get("required"), preferred=said.get("preferred"), sub_groups=groups)


def _groups(value: str, *, text: str, workers: int) -> SubGroups:
    size, _, level = value.partition(":")
    _check_level(level, text=text)
    if not _GROUP_SIZE.fullmatch(size) or int(size) < 2 or workers % int(size):
        raise UsageError(
            f'--topology "{text}": the number of workers (--nodes), which is {workers}, must be a multiple of the '
            "group's size, such as --nodes 8 --topology group=4:nvlink"
        )
    return SubGroups(size=int(size), required=level)


def _check_level(name: str, *, text: str) -> None:
    if not _LEVEL.fullmatch(name) or len(name) > 63:
        raise UsageError(f'--topology "{text}": "{name}" is no name of a level, such as rack: {_RULES}')
