"""Which guests there are, by the keys under which others know them. No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta, key_of
from dovetail.api.resources import Resource
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.jobs.guests.pod_group import SINGLE_PODS, PodGroup, first_pod
from dovetail.jobs.guests.record import is_record_of, name_with, record_name

GONE: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A guest and the adapter of its kind.

    A pod by which a running guest has grown waits by itself: `of` is the key of that guest's record then, or `GONE`.
    """

    guest: Guest
    kind: Kind
    of: str = ""

    @property
    def key(self) -> str:
        """The `namespace/name` of its record."""
        return f"{self.guest.metadata.namespace}/{record_name(self.guest, kind=self.kind)}"

    @property
    def about(self) -> ObjectMeta:
        """What its events are about: the guest, the object that a gang's pods name, or the first pod of a group."""
        if not isinstance(self.guest, PodGroup):
            return self.guest.metadata
        return first_pod(self.guest) if self.guest.gang is None else self.guest.gang.metadata

    @property
    def resource(self) -> Resource:
        """The kind of that object."""
        gang = self.guest.gang if isinstance(self.guest, PodGroup) else None
        return self.kind.resource if gang is None else gang.resource

    @property
    def run(self) -> str:
        """The text that its pods carry; empty if no webhook saw the guest when it was created."""
        meta = self.guest.metadata
        return (meta.labels if isinstance(self.guest, PodGroup) else meta.annotations).get(names.RUN, "")


def key_of_pod(meta: ObjectMeta) -> str:
    """The `namespace/name` of the record of a pod that waits by itself."""
    return f"{meta.namespace}/{name_with(SINGLE_PODS.prefix, name=meta.name)}"


class Directory:
    """All guests by the key of their record, and by the run that their pods carry."""

    def __init__(self) -> None:
        self._by_key: dict[str, Known] = {}
        # By namespace and run: a label from another namespace finds nothing.
        self._keys: dict[tuple[str, str], str] = {}
        # By the key of a guest's record: the keys of the pods by which it has grown.
        self._added: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._by_key))

    def put(self, found: Known) -> None:
        """Add a guest, or its newer version."""
        self._by_key[found.key] = found
        if found.of:
            self._added.setdefault(found.of, set()).add(found.key)
        elif found.run:
            self._keys[found.guest.metadata.namespace, found.run] = found.key

    def drop(self, found: Known) -> None:
        """Remove a deleted guest. A new one of the same name stays."""
        known = self._by_key.get(found.key)
        if known is not None and known.guest.metadata.uid == found.guest.metadata.uid:
            del self._by_key[found.key]
            if known.of:
                self._added[known.of].discard(found.key)
                if not self._added[known.of]:
                    del self._added[known.of]
            else:
                self._keys.pop((found.guest.metadata.namespace, known.run), None)

    def at(self, key: str) -> Known | None:
        """The guest whose record has this key."""
        return self._by_key.get(key)

    def added_to(self, key: str) -> list[Known]:
        """The pods by which the guest whose record has this key has grown."""
        return [self._by_key[each] for each in sorted(self._added.get(key, ()))]

    def added_pod(self, meta: ObjectMeta) -> Known | None:
        """A pod by which a guest has grown; None for any other pod."""
        known = self._by_key.get(key_of_pod(meta))
        return known if known is not None and known.of and known.guest.metadata.uid == meta.uid else None

    def of_run(self, run: str, *, namespace: str) -> str | None:
        """The key of the record whose guest has this run."""
        return self._keys.get((namespace, run))

    def of_record(self, job: GPUJob) -> Known | None:
        """The guest of a record; None for any other GPUJob, and when the guest has gone."""
        known = self._by_key.get(key_of(job.metadata))
        return known if known is not None and is_record_of(job, guest=known.guest) else None
