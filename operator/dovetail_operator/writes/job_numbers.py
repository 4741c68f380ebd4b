"""Short numbers of jobs: unique in their namespace and never reused, even after a crash.

A ConfigMap has the last number of each namespace. It is raised before any status shows a number, with one write per
batch of jobs. While many jobs come, it is raised further than they need, so that the next ones cost no write. An
operator that ends in between leaves a gap, and never gives a number twice.

An object has at most 1 MiB, so the ConfigMap has the numbers of 4,096 namespaces at most. Of more, one entry has the
highest number that any namespace without an entry was given. A namespace that comes back goes on above it.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import ConfigMap
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta
from dovetail.formats.quantities import read_whole
from dovetail.kube.client import Client
from dovetail.kube.retry import retry_on_conflict
from dovetail.logs import get_logger
from dovetail_operator.job.status_pacing import Burst
from dovetail_operator.writes.configmaps import CONFLICTS, read_configmap, write_configmap

log = get_logger("dovetail.operator.numbers")

_ATTEMPTS: Final = 5
# How many numbers a namespace reserves beyond those that it needs while many jobs come: the gap after an operator that
# ends. Who submits job after job sees none.
_AHEAD: Final = 32
# Names have up to 63 characters, and the API server keeps each key a second time, as a managed field: 0.6 MiB.
_MOST_NAMESPACES: Final = 4096
# No name of a namespace has a capital letter.
_OTHERS: Final = "otherNamespaces"


def allot(jobs: Iterable[GPUJob], *, last: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Allot numbers by UID, in order of age. Also returns each namespace's new last number.

    Pure.
    """
    counters = dict(last)
    numbers: dict[str, int] = {}
    for job in sorted(jobs, key=lambda job: _age(job.metadata)):
        namespace = job.metadata.namespace
        counters[namespace] = counters.get(namespace, 0) + 1
        numbers[job.metadata.uid] = counters[namespace]
    return numbers, counters


def _age(job: ObjectMeta) -> tuple[str, int, str]:
    """The sort key for age: creation times have whole seconds, versions order jobs within one."""
    return job.creation_timestamp, int(job.resource_version), job.name


def read_counters(data: Mapping[str, str]) -> dict[str, int]:
    """The last number of each namespace, as stored."""
    counters: dict[str, int] = {}
    for namespace, text in data.items():
        if (last := read_whole(text, otherwise=-1)) >= 0:
            counters[namespace] = last
        else:
            log.warning("last number cannot be read", configmap=names.JOB_NUMBERS, key=namespace, value=text)
    return counters


def bounded(counters: Mapping[str, int], *, others: int) -> dict[str, int]:
    """The entries of the ConfigMap, in which those below `others` have no need of one.

    Where they would be too many, the lower half leaves it together, so that few writes change so much. Pure.
    """
    if len(counters) > _MOST_NAMESPACES:
        ordered = sorted(counters, key=lambda name: (counters[name], name), reverse=True)
        others = max(others, counters[ordered[_MOST_NAMESPACES // 2]])
        counters = {name: counters[name] for name in ordered[: _MOST_NAMESPACES // 2]}
    return {**counters, **({_OTHERS: others} if others else {})}


def highest_shown(shown: Iterable[GPUJob]) -> dict[str, int]:
    """The highest number that a job of each namespace has.

    It matters only if a user deleted or edited the ConfigMap.
    """
    highest: dict[str, int] = {}
    for job in shown:
        if job.status.number is not None:
            namespace = job.metadata.namespace
            highest[namespace] = max(highest.get(namespace, 0), job.status.number)
    return highest


def _highest(*counters: Mapping[str, int]) -> dict[str, int]:
    """The highest number of each namespace."""
    highest: dict[str, int] = {}
    for each in counters:
        for namespace, last in each.items():
            highest[namespace] = max(highest.get(namespace, 0), last)
    return highest


class Numbers:
    """Allots numbers. `namespace` is where the ConfigMap is stored; `clock` is monotonic, in seconds."""

    def __init__(self, client: Client, *, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._configmap: ConfigMap | None = None
        # The last number given in each namespace, which edits or deletion of the ConfigMap do not take back.
        self._given: dict[str, int] = {}
        # The highest that a namespace without an entry may have been given.
        self._others = 0
        # The last number that this operator has stored for a namespace: those after the last given one are its own.
        self._reserved: dict[str, int] = {}
        self._arrivals = Burst()

    async def give(self, jobs: Iterable[GPUJob], *, shown: Iterable[GPUJob]) -> dict[str, int]:
        """Allot a number to each of `jobs`, by UID. They are stored on return. `shown` are all jobs."""
        jobs, now, highest = list(jobs), self._clock(), highest_shown(shown)
        self._arrivals.note(now, count=len(jobs))
        if (reserved := self._reserved_numbers(jobs, highest=highest)) is not None:
            return reserved
        ahead = _AHEAD if self._arrivals.is_one(now) else 0

        async def give(_attempt: int) -> dict[str, int]:
            return await self._store(jobs, highest=highest, ahead=ahead)

        try:
            return await retry_on_conflict(give, attempts=_ATTEMPTS, conflicts=CONFLICTS)
        except CONFLICTS as error:
            raise RuntimeError(
                f"ConfigMap {self._namespace}/{names.JOB_NUMBERS} was changed by others {_ATTEMPTS} times in a row"
            ) from error

    def _reserved_numbers(self, jobs: list[GPUJob], *, highest: Mapping[str, int]) -> dict[str, int] | None:
        """Numbers that were reserved before; None if they are not enough."""
        numbers, counters = allot(jobs, last=_highest(self._given, highest))
        if any(counters[namespace] > self._reserved.get(namespace, 0) for namespace in _namespaces(jobs)):
            return None
        self._given = counters
        return numbers

    async def _store(self, jobs: list[GPUJob], *, highest: Mapping[str, int], ahead: int) -> dict[str, int]:
        """Allot numbers, and reserve so many more in each namespace. Raises one of `CONFLICTS`."""
        # Our copy is outdated if the write fails: another client has written or deleted the ConfigMap.
        configmap, self._configmap = self._configmap or await self._read(), None
        stored = read_counters(configmap.data)
        self._others = max(self._others, stored.pop(_OTHERS, 0))
        # What another client has stored is taken, up to the last number.
        taken = {name: last for name, last in stored.items() if last != self._reserved.get(name)}
        taken |= {name: self._others for name in _namespaces(jobs) if name not in stored}
        numbers, counters = allot(jobs, last=_highest(taken, self._given, highest))
        ends = _highest(counters, stored)
        ends = {name: end for name, end in ends.items() if name in stored or end > self._others}
        for name in _namespaces(jobs):
            # One that gets its first number, or goes on after others, needs no more yet.
            ends[name] = max(ends[name], counters[name] + ahead if name in stored else 0)
        entries = bounded(ends, others=self._others)
        changed = msgspec.structs.replace(configmap, data={name: str(end) for name, end in sorted(entries.items())})
        self._configmap = await write_configmap(self._client, configmap=changed, removed=stored.keys() - entries.keys())
        self._given, self._reserved = counters, ends
        return numbers

    async def _read(self) -> ConfigMap:
        return await read_configmap(self._client, name=names.JOB_NUMBERS, namespace=self._namespace)


def _namespaces(jobs: Iterable[GPUJob]) -> set[str]:
    return {job.metadata.namespace for job in jobs}
