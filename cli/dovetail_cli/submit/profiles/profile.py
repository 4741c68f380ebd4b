"""A profile's keys: their types, checks and texts. Pure."""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from dovetail.decoding import UnreadableError, convert
from dovetail_cli.submit import manifest, pod_options
from dovetail_cli.submit.manifest import Fallback
from dovetail_cli.submit.pod_options import Volume
from dovetail_cli.ui.errors import UsageError

_PORT: Final = re.compile(r"[1-9]\d{0,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Defaults for jobs on a cluster; None and empty values are not set.

    image          the container's image
    env            variables of the container
    volumes        claims that are mounted in the container
    workdir        the folder in the container in which each job gets its directory
    node_selector  labels of the nodes that the job may run on
    gateway        the address of the cluster's gateway, without a slash at its end
    upload         whether the directory in which gbatch was typed goes along with the job
    cpu_fallback   when a job runs on the CPU instead of its GPUs
    """

    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    workdir: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    gateway: str | None = None
    upload: bool | None = None
    cpu_fallback: Fallback | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a profile.

    as_type   the type of its value in YAML
    check     the value as `Profile` holds it; raises ValueError or `UsageError`
    text      the value as YAML holds it
    allowed   the rest of the sentence about a value that is not allowed
    """

    as_type: Any
    check: Callable[[Any], Any]
    text: Callable[[Any], Any]
    allowed: str

    @property
    def has_names(self) -> bool:
        """Whether its value is a table, so that `KEY.NAME` is one entry."""
        return bool(self.as_type == dict[str, str])


def decode(values: Any, *, where: str) -> Profile:
    """The profile of a YAML document's values.

    Raises `UsageError`, a sentence that begins with `where`.
    """
    try:
        table = convert({} if values is None else values, as_type=dict[str, Any])
    except UnreadableError as error:
        raise UsageError(
            f"{where}: {shown(values)}: write keys and values; allowed are {', '.join(KEYS)}, such as image: busybox"
        ) from error
    return Profile(**{attribute(name): _checked(name, value=value, where=where) for name, value in table.items()})


def encode(profile: Profile) -> dict[str, Any]:
    """The values that are set, as YAML holds them."""
    found = {name: getattr(profile, attribute(name)) for name in KEYS}
    return {name: KEYS[name].text(value) for name, value in found.items() if value not in (None, {}, ())}


def over(first: Profile, *, second: Profile) -> Profile:
    """Both profiles in one; of what both set, the first counts.

    Variables, labels and volumes are merged: by name, key and path.
    """
    paths = {each.path for each in first.volumes}
    return Profile(
        image=first.image or second.image,
        env={**second.env, **first.env},
        volumes=(*first.volumes, *(each for each in second.volumes if each.path not in paths)),
        workdir=first.workdir or second.workdir,
        node_selector={**second.node_selector, **first.node_selector},
        gateway=first.gateway or second.gateway,
        upload=second.upload if first.upload is None else first.upload,
        cpu_fallback=first.cpu_fallback or second.cpu_fallback,
    )


def attribute(name: str) -> str:
    """The field of `Profile` that a key is."""
    return name.replace("-", "_")


def shown(value: Any) -> str:
    """A value in a sentence: at most 60 characters of one line."""
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True).removesuffix("...\n")
    line = " ".join(text.split())
    return f'"{line}"' if len(line) <= 60 else f'"{line[:57]}..."'


def _checked(name: str, *, value: Any, where: str) -> Any:
    key = KEYS.get(name)
    if key is None:
        raise UsageError(f'{where}: unknown key "{name}"; allowed are {", ".join(KEYS)}')
    if key.has_names and isinstance(value, dict):
        for entry, text in value.items():
            _converted(key, value={entry: text}, said=f"{where}: {name}.{entry} {shown(text)}")
    return _converted(key, value=value, said=f"{where}: {name} {shown(value)}")


def _converted(key: Key, *, value: Any, said: str) -> Any:
    try:
        return key.check(convert(value, as_type=key.as_type))
    except (UnreadableError, UsageError, ValueError) as error:
        raise UsageError(f"{said}: {key.allowed}") from error


def _plain(value: Any) -> Any:
    return value


def _env(values: Mapping[str, str]) -> dict[str, str]:
    if any("=" in name for name in values):
        raise ValueError(values)
    return pod_options.variables([f"{name}={value}" for name, value in values.items()])


def _node_selector(values: Mapping[str, str]) -> dict[str, str]:
    if any("," in f"{name}{value}" or "=" in name for name, value in values.items()):
        raise ValueError(values)
    return pod_options.node_labels([f"{name}={value}" for name, value in values.items()])


def _directory(text: str) -> str:
    path = posixpath.normpath(text)
    if not path.startswith("/") or path.strip("/") == "" or not path.isprintable() or ":" in path:
        raise ValueError(text)
    return path


def _fallback(value: bool | int | str) -> Fallback:
    return (
        manifest.fallback_of(value, after=None)
        if isinstance(value, bool)
        else manifest.fallback_of(None, after=str(value))
    )


def _fallback_text(fallback: Fallback) -> bool | str:
    return fallback.on_no_gpu == "RunOnCPU" if fallback.after_seconds is None else f"{fallback.after_seconds}s"


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(text)
    if not text.isprintable() or " " in text or (parts.port is not None and not _PORT.fullmatch(str(parts.port))):
        raise ValueError(text)
    return text.rstrip("/")


KEYS: Final[Mapping[str, Key]] = {
    "image": Key(
        as_type=str,
        check=manifest.check_image,
        text=_plain,
        allowed="write an image without blanks, such as busybox:1.37",
    ),
    "env": Key(
        as_type=dict[str, str],
        check=_env,
        text=dict,
        allowed="write names and texts, numbers in quotes, such as {LR: '0.1'}; Dovetail sets the variables of "
        "devices itself",
    ),
    "volumes": Key(
        as_type=list[str],
        check=pod_options.volumes,
        text=lambda volumes: [str(each) for each in volumes],
        allowed="write a list of PersistentVolumeClaims and paths, such as data:/data or data:/data:ro, each path once",
    ),
    "workdir": Key(
        as_type=str,
        check=_directory,
        text=_plain,
        allowed="write an absolute path of the container below /, such as /data/runs",
    ),
    "node-selector": Key(
        as_type=dict[str, str],
        check=_node_selector,
        text=dict,
        allowed="write labels of nodes and their values as texts, such as {disk: nvme}",
    ),
    "gateway": Key(
        as_type=str,
        check=_url,
        text=_plain,
        allowed="write an address such as https://gpu.example.org, without user and query",
    ),
    "upload": Key(as_type=bool, check=_plain, text=_plain, allowed="allowed are true and false"),
    "cpu-fallback": Key(
        as_type=bool | int | str,
        check=_fallback,
        text=_fallback_text,
        allowed="write true (where no GPU could ever serve the job), false, or a wait for busy GPUs such as 30m",
    ),
}
