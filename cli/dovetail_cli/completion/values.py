"""Jobs, devices and namespaces of the cluster, as candidates for the options that take them.

A person presses Tab several times for one word: what was read some seconds ago comes from a file.
"""

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import GPUNODES, NAMESPACES
from dovetail.decoding import Decoder, UnreadableError
from dovetail.jobs.display_name import display_name
from dovetail.query.jobs.states import is_unfinished, short_state
from dovetail_cli.cluster.connection import Cluster, list_jobs, work

# A candidate and what is said about it.
Value = tuple[str, str]
Read = Callable[[Cluster], Awaitable[Sequence[Value]]]

FRESH_SECONDS: Final = 5.0
_CACHED: Final[Decoder[list[Value]]] = Decoder(list[Value])
# A person who presses Tab waits no longer than this.
_PATIENCE_SECONDS: Final = 2.0
_MOST: Final = 200
_ALL: Final = "all"
_INTERPRETED: Final = re.compile(r"[^A-Za-z0-9._+@/ -]")


class _Object(Described, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


def jobs(incomplete: str, *, given: Mapping[str, Any]) -> list[Value]:
    """Jobs by number, or by name once a letter is typed; the newest first."""
    return _jobs(incomplete, kind="jobs", read=_all_jobs, given=given)


def unfinished_jobs(incomplete: str, *, given: Mapping[str, Any]) -> list[Value]:
    """The same for jobs that wait or run."""
    return _jobs(incomplete, kind="unfinished", read=_unfinished_jobs, given=given)


def devices(incomplete: str, *, given: Mapping[str, Any]) -> list[Value]:
    """All devices of each node, `node-1:all`; single ones as soon as it is clear of which node."""
    found = _matching(_asked("devices", read=_devices, given=given), incomplete=incomplete)
    nodes = {value.rpartition(":")[0] for value, _ in found}
    return [each for each in found if len(nodes) == 1 or each[0].endswith(f":{_ALL}")]


def namespaces(incomplete: str, *, given: Mapping[str, Any]) -> list[Value]:
    """The namespaces."""
    return _matching(_asked("namespaces", read=_namespaces, given=given), incomplete=incomplete)


def after_quota(incomplete: str, *, given: Mapping[str, Any]) -> list[Value]:  # noqa: ARG001 - as the others
    """The words that make a command of `dovetail quota`."""
    return _matching(_commands_below("quota"), incomplete=incomplete)


def after_limits(incomplete: str, *, given: Mapping[str, Any]) -> list[Value]:  # noqa: ARG001 - as the others
    """The words that make a command of `dovetail limits`, and the keys."""
    return _matching([*_commands_below("limits"), *_live_keys()], incomplete=incomplete)


def live_keys(incomplete: str, *, given: Mapping[str, Any]) -> list[Value]:  # noqa: ARG001 - as the others
    """The keys of the configuration that count at once."""
    return _matching(_live_keys(), incomplete=incomplete)


def _commands_below(name: str) -> list[Value]:
    from dovetail_cli.app import COMMANDS

    return [
        (command.removeprefix(f"{name} "), entry.help)
        for command, entry in COMMANDS.items()
        if command.startswith(f"{name} ")
    ]


def _live_keys() -> list[Value]:
    from dovetail.config.reference import keys

    return [(key.name, f"default {_plain(str(key.default))}") for key in keys() if key.live]


def _jobs(incomplete: str, *, kind: str, read: Read, given: Mapping[str, Any]) -> list[Value]:
    found = _matching(_asked(kind, read=read, given=given), incomplete=incomplete)
    # Numbers are what is shorter to type: names follow as soon as one is begun.
    return found if incomplete else [each for each in found if each[0].isdigit()]


def _matching(values: Sequence[Value], *, incomplete: str) -> list[Value]:
    return [value for value in values if value[0].startswith(incomplete)][:_MOST]


def _asked(kind: str, *, read: Read, given: Mapping[str, Any]) -> list[Value]:
    """The values of the cluster that the command line names so far, from the cache or read now."""
    kubeconfig, context, namespace = (given.get(name) for name in ("kubeconfig", "context", "namespace"))

    async def task(cluster: Cluster) -> Sequence[Value]:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await read(cluster)

    question = [kind, *(str(each or "") for each in (kubeconfig, context, namespace, os.environ.get("KUBECONFIG")))]
    return cached(
        question,
        read=lambda: work(task, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True),
    )


def cached(
    question: Sequence[str], *, read: Callable[[], Sequence[Value]], now: Callable[[], float] = time.time
) -> list[Value]:
    """The values for a question, such as the kind, the kubeconfig and the namespace.

    Reads them if the answer on disk is older than `FRESH_SECONDS`, and keeps what was read. A cache that cannot be read
    or written is no error.
    """
    file = _cache_folder() / hashlib.sha256("\0".join(question).encode("utf-8", "surrogateescape")).hexdigest()
    with suppress(OSError, UnreadableError):
        if 0 <= now() - file.stat().st_mtime < FRESH_SECONDS:
            return _CACHED.decode(file.read_bytes())
    values = list(read())
    with suppress(OSError):
        _write(file, data=msgspec.json.encode(values))
    return values


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail" / "completion"


def _write(file: Path, *, data: bytes) -> None:
    """Replace the file at once; only its user may read it: names of jobs are not for others."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(data)
    written.replace(file)


async def _all_jobs(cluster: Cluster) -> list[Value]:
    return _named(await list_jobs(cluster))


async def _unfinished_jobs(cluster: Cluster) -> list[Value]:
    return _named([job for job in await list_jobs(cluster) if is_unfinished(job)])


def _named(found: Sequence[GPUJob]) -> list[Value]:
    """Number and name of each job, without names that a shell would interpret."""
    values = []
    for job in reversed(found):
        name, state = display_name(job.metadata), short_state(job)
        if job.status.number is not None:
            values.append((str(job.status.number), f"{_plain(name)} {state}"))
        if name == _plain(name) and " " not in name:
            values.append((name, f"job {job.status.number or '-'} {state}"))
    return values


def _plain(text: str) -> str:
    """The text without characters that a shell interprets: zsh evaluates what it is offered."""
    return _INTERPRETED.sub("", text)


async def _devices(cluster: Cluster) -> list[Value]:
    found = (await cluster.client.list(GPUNODES, as_type=GPUNode)).items
    return [
        value
        for node in sorted(found, key=lambda node: node.metadata.name)
        for value in [
            (f"{node.metadata.name}:{_ALL}", f"{len(node.status.devices)} devices"),
            *((f"{node.metadata.name}:{each.index}", _plain(each.model)) for each in node.status.devices),
        ]
    ]


async def _namespaces(cluster: Cluster) -> list[Value]:
    found = (await cluster.client.list(NAMESPACES, as_type=_Object)).items
    return [(each.metadata.name, "") for each in found]
