"""Which guests there are, by the keys under which others know them. No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta, key_of
from dovetail.jobs.guests.kind import Guest, Kind
from dovetail.jobs.guests.pod_group import PodGroup, first_pod
from dovetail.jobs.guests.record import is_record_of, record_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A guest and the adapter of its kind."""

    guest: Guest
    kind: Kind

    @property
    def key(self) -> str:
        """The `namespace/name` of its record."""
        return f"{self.guest.metadata.namespace}/{record_name(self.guest, kind=self.kind)}"

    @property
    def about(self) -> ObjectMeta:
        """What its events are about: the guest, or the first pod of a group."""
        return first_pod(self.guest) if isinstance(self.guest, PodGroup) else self.guest.metadata

    @property
    def run(self) -> str:
        """The text that its pods carry; empty if no webhook saw the guest when it was created."""
        meta = self.guest.metadata
        return (meta.labels if isinstance(self.guest, PodGroup) else meta.annotations).get(names.RUN, "")


class Directory:
    """All guests by the key of their record, and by the run that their pods carry."""

    def __init__(self) -> None:
        self._by_key: dict[str, Known] = {}
        # By namespace and run: a label from another namespace finds nothing.
        self._keys: dict[tuple[str, str], str] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._by_key))

    def put(self, found: Known) -> None:
        """Add a guest, or its newer version."""
        self._by_key[found.key] = found
        if found.run:
            self._keys[found.guest.metadata.namespace, found.run] = found.key

    def drop(self, found: Known) -> None:
        """Remove a deleted guest. A new one of the same name stays."""
        known = self._by_key.get(found.key)
        if known is not None and known.guest.metadata.uid == found.guest.metadata.uid:
            del self._by_key[found.key]
            self._keys.pop((found.guest.metadata.namespace, known.run), None)

    def at(self, key: str) -> Known | None:
        """The guest whose record has this key."""
        return self._by_key.get(key)

    def of_run(self, run: str, *, namespace: str) -> str | None:
        """The key of the record whose guest has this run."""
        return self._keys.get((namespace, run))

    def of_record(self, job: GPUJob) -> Known | None:
        """The guest of a record; None for any other GPUJob, and when the guest has gone."""
        known = self._by_key.get(key_of(job.metadata))
        return known if known is not None and is_record_of(job, guest=known.guest) else None
