"""Short numbers of jobs: unique in their namespace and never reused, even after a crash.

A ConfigMap has the last number of each namespace. It is raised before any status shows a number, with one write per
batch of jobs. A crash between the two leaves a gap, and never gives a number twice.
"""

from collections.abc import Iterable, Mapping
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
from dovetail_operator.writes.configmaps import CONFLICTS, read_configmap, write_configmap

log = get_logger("dovetail.operator.numbers")

_ATTEMPTS: Final = 5


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


def read_counters(data: Mapping[str, str], *, shown: Iterable[GPUJob]) -> dict[str, int]:
    """The last number of each namespace: the stored one, or the highest that a job has.

    The latter matters only if a user deleted or edited the ConfigMap.
    """
    counters: dict[str, int] = {}
    for namespace, text in data.items():
        if (last := read_whole(text, otherwise=-1)) >= 0:
            counters[namespace] = last
        else:
            log.warning("last number cannot be read", configmap=names.JOB_NUMBERS, key=namespace, value=text)
    for job in shown:
        namespace = job.metadata.namespace
        counters[namespace] = max(counters.get(namespace, 0), job.status.number or 0)
    return counters


class Numbers:
    """Allots numbers. `namespace` is where the ConfigMap is stored."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._configmap: ConfigMap | None = None
        # The last number given in each namespace, which edits or deletion of the ConfigMap do not take back.
        self._given: dict[str, int] = {}

    async def give(self, jobs: Iterable[GPUJob], *, shown: Iterable[GPUJob]) -> dict[str, int]:
        """Allot a number to each of `jobs`, by UID. They are stored on return. `shown` are all jobs."""
        jobs, shown = list(jobs), list(shown)

        async def give(_attempt: int) -> dict[str, int]:
            # Our copy is outdated if the write fails: another client has written or deleted the ConfigMap.
            configmap, self._configmap = self._configmap or await self._read(), None
            last = read_counters(configmap.data, shown=shown)
            last |= {namespace: max(given, last.get(namespace, 0)) for namespace, given in self._given.items()}
            numbers, counters = allot(jobs, last=last)
            data = {namespace: str(last) for namespace, last in sorted(counters.items())}
            changed = msgspec.structs.replace(configmap, data=data)
            self._configmap = await write_configmap(self._client, configmap=changed)
            self._given = counters
            return numbers

        try:
            return await retry_on_conflict(give, attempts=_ATTEMPTS, conflicts=CONFLICTS)
        except CONFLICTS as error:
            raise RuntimeError(
                f"ConfigMap {self._namespace}/{names.JOB_NUMBERS} was changed by others {_ATTEMPTS} times in a row"
            ) from error

    async def _read(self) -> ConfigMap:
        return await read_configmap(self._client, name=names.JOB_NUMBERS, namespace=self._namespace)
