"""What changed, in order: a ring of deltas that every stream reads at its own pace."""

import asyncio
import hashlib
import secrets
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from dovetail.answers.inventory import NodeUse
from dovetail.answers.jobs import job_row
from dovetail.answers.node_rows import node_row
from dovetail_gateway.access.shared_calls import SharedCalls
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.stream.gzip_pieces import GzipPieces
from dovetail_gateway.v3.types.stream import Delta, GoneJob, Snapshot

V = TypeVar("V")
COALESCE_SECONDS: Final = 0.25
KEPT_SECONDS: Final = 30.0
_MOST_KEPT: Final = int(KEPT_SECONDS / COALESCE_SECONDS)
_MOST_SNAPSHOTS: Final = 4
# So many rows are compressed together, on average.
_GROUP: Final = 32
# So many rows are encoded before others have their turn in the event loop.
_SLICE: Final = 50
# So many jobs and nodes at once are a relist: streams then take a new snapshot.
_MOST_CHANGES: Final = 5_000


# Of deltas that are encoded. Streams read a delta within a moment; a late one encodes it again.
_MOST_ENCODED_BYTES: Final = 16 << 20
# What one of them takes in addition to its text, also an empty one.
_ENTRY_BYTES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A delta with all rows of jobs. `nodes` become its rows of nodes once it is known who sees them."""

    delta: Delta
    nodes: Sequence[NodeUse]

    @property
    def seq(self) -> int:
        """The sequence number."""
        return self.delta.seq

    def encoded(self, sees: Visibility) -> bytes:
        """The delta as JSON; empty if nothing of it is visible."""
        delta = msgspec.structs.replace(
            self.delta,
            jobs=[row for row in self.delta.jobs if sees.sees(row.namespace)],
            gone_jobs=[each for each in self.delta.gone_jobs if sees.sees(each.namespace)],
            nodes=[node_row(node, sees=sees.sees) for node in self.nodes],
        )
        shown = delta.jobs or delta.gone_jobs or delta.nodes or delta.gone_nodes
        return msgspec.json.encode(delta) if shown else b""


class EncodedDeltas:
    """Deltas as JSON, each encoded once for all who see the same; those used least recently are forgotten.

    `most_bytes` bounds their texts together.
    """

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._texts: OrderedDict[tuple[int, Visibility], bytes] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._texts)

    def of(self, change: Change, *, sees: Visibility) -> bytes:
        """The delta of a change for those who see this; empty if nothing of it is visible."""
        key = (change.seq, sees)
        found = self._texts.pop(key, None)
        if found is None:
            found = change.encoded(sees)
            self.bytes += len(found) + _ENTRY_BYTES
        self._texts[key] = found
        while self.bytes > self._most_bytes:
            _, forgotten = self._texts.popitem(last=False)
            self.bytes -= len(forgotten) + _ENTRY_BYTES
        return found


class EncodedRows(Generic[V]):
    """The rows of objects of one kind as JSON, by key, each encoded once: an object never changes. Mutable.

    `row` makes the row of an object.
    """

    def __init__(self, row: Callable[[V], msgspec.Struct]) -> None:
        self._row = row
        # With the object, so that another one of the same key is another version.
        self._kept: dict[str, tuple[V, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, key: str, *, value: V) -> bytes:
        """The row of this object."""
        kept = self._kept.get(key)
        if kept is None or kept[0] is not value:
            kept = self._kept[key] = value, msgspec.json.encode(self._row(value))
        return kept[1]

    def forget(self, key: str) -> None:
        """Forget the row of this key."""
        self._kept.pop(key, None)

    def keep_only(self, keys: Container[str]) -> None:
        """Forget the rows of all other keys."""
        for gone in [key for key in self._kept if key not in keys]:
            del self._kept[gone]


class Feed:
    """Collects the cache's changes; `run()` does so until it is cancelled.

    `epoch` names this process: its sequence numbers mean nothing to another one.
    """

    def __init__(self, cache: ClusterCache, *, coalesce_seconds: float = COALESCE_SECONDS) -> None:
        self.epoch = secrets.token_hex(4)
        self.seq = 0
        self._cache = cache
        self._coalesce_seconds = coalesce_seconds
        self._kept: deque[Change] = deque(maxlen=_MOST_KEPT)
        self._next = asyncio.Event()
        self._encoded = EncodedDeltas(most_bytes=_MOST_ENCODED_BYTES)
        # By audience: the parts of the text with its `seq`, those that are compressed, and the whole with its tag.
        self._snapshots: dict[Visibility, tuple[int, Sequence[bytes]]] = {}
        self._pieces: dict[Visibility, GzipPieces] = {}
        self._gzipped: dict[Visibility, tuple[str, bytes]] = {}
        # Not by tag: its few letters are no proof of who sees what.
        self._calls: SharedCalls[tuple[int, Visibility], bytes] = SharedCalls()
        # A job's row is the same for all who see it. A node's row hides tenants, so each audience has its own.
        self._job_rows = EncodedRows(job_row)
        self._node_rows: dict[Visibility, EncodedRows[NodeUse]] = {}
        # What changed since rows were last encoded ahead.
        self._ahead_jobs: set[str] = set()
        self._ahead_nodes: set[str] = set()

    async def run(self) -> None:
        """Collect changes, and encode the rows of jobs before the first snapshot needs them."""
        while True:
            await asyncio.sleep(self._coalesce_seconds)
            self.collect()
            if not self._cache.obstacle:
                await self._encode_ahead()

    async def _encode_ahead(self) -> None:
        """Read what changed, some at a time: a list of a large cluster at once would hold the event loop."""
        jobs, self._ahead_jobs = self._ahead_jobs, set()
        nodes, self._ahead_nodes = self._ahead_nodes, set()
        for at, name in enumerate(nodes):
            # The cache keeps it.
            self._cache.node_use(name)
            if at % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
        for at, key in enumerate(jobs):
            if (job := self._cache.jobs.get(key)) is None:
                self._job_rows.forget(key)
            else:
                self._job_rows.of(key, value=job)
            if at % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)

    def collect(self) -> None:
        """Add one delta of what changed since the last one."""
        changes = self._cache.take_changes()
        if not changes:
            return
        self._ahead_jobs |= changes.jobs
        self._ahead_nodes |= changes.nodes
        self.seq += 1
        if len(changes.jobs) + len(changes.nodes) > _MOST_CHANGES:
            self._kept.clear()
        else:
            self._kept.append(self._change(changes.jobs, nodes=changes.nodes))
        self.wake()

    def wake(self) -> None:
        """Let all that wait go on."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Return at the next delta, or at `wake`."""
        await self._next.wait()

    def since(self, seq: int) -> Sequence[Change] | None:
        """The deltas after `seq`; None if some of them are kept no more."""
        if seq > self.seq:
            return None
        if seq == self.seq:
            return ()
        if not self._kept or self._kept[0].seq > seq + 1:
            return None
        return [change for change in self._kept if change.seq > seq]

    def delta(self, change: Change, *, sees: Visibility) -> bytes:
        """A change as JSON for those who see this; empty if nothing of it is visible."""
        return self._encoded.of(change, sees=sees)

    def snapshot(self, *, sees: Visibility) -> tuple[bytes, str]:
        """Everything that the caller sees, from which the deltas after its `seq` lead on, as JSON; and its tag."""
        return b"".join(self._parts(sees)), self._tag(sees)

    async def gzipped_snapshot(self, *, sees: Visibility) -> tuple[bytes, str]:
        """The same as gzip: of the 11 MiB of 10,000 jobs, a browser gets 0.8."""
        tag = self._tag(sees)
        kept, found = self._gzipped.get(sees, ("", b""))
        if kept != tag:
            parts = self._parts(sees)
            found = await self._calls.result((self.seq, sees), of=lambda: self._compressed(parts, sees=sees, tag=tag))
        return found, tag

    async def _compressed(self, parts: Sequence[bytes], *, sees: Visibility, tag: str) -> bytes:
        pieces = self._pieces.pop(sees, None) or GzipPieces()
        # In a thread: the first time takes a while, and bytes never change.
        found = await asyncio.to_thread(pieces.compressed, parts)
        _keep_last(self._pieces, key=sees, value=pieces)
        _keep_last(self._gzipped, key=sees, value=(tag, found))
        return found

    def _tag(self, sees: Visibility) -> str:
        return f"{self.epoch}:{self.seq}:{_digest(sees)}"

    def _parts(self, sees: Visibility) -> Sequence[bytes]:
        """The text of the snapshot in parts: most of them are the same in the next one.

        They are put together once for all who see the same, until the next delta. Rows are encoded again only where
        their objects have changed, which is a small part of them.
        """
        seq, parts = self._snapshots.get(sees, (-1, ()))
        if seq != self.seq:
            self._snapshots = {key: kept for key, kept in self._snapshots.items() if kept[0] == self.seq}
            parts = self._joined(sees)
            _keep_last(self._snapshots, key=sees, value=(self.seq, parts))
        return parts

    def _joined(self, sees: Visibility) -> Sequence[bytes]:
        jobs = [
            (key, self._job_rows.of(key, value=job))
            for key, job in self._cache.jobs.items()
            if sees.sees(job.metadata.namespace)
        ]
        rows = self._node_rows_for(sees)
        rows.keep_only(self._cache.gpunodes)
        nodes = [(use.name, rows.of(use.name, value=use)) for use in self._cache.node_uses()]
        empty = msgspec.json.encode(Snapshot(epoch=self.epoch, seq=self.seq, jobs=[], nodes=[]))
        begin, middle, end = empty.split(b"[]")
        return [begin + b"[", *_groups(jobs), b"]" + middle + b"[", *_groups(nodes), b"]" + end]

    def _node_rows_for(self, sees: Visibility) -> EncodedRows[NodeUse]:
        """The rows of nodes as those see them who see this."""
        found = self._node_rows.pop(sees, None) or EncodedRows(lambda use: node_row(use, sees=sees.sees))
        _keep_last(self._node_rows, key=sees, value=found)
        return found

    def _change(self, jobs: set[str], *, nodes: set[str]) -> Change:
        there = {key: self._cache.jobs.get(key) for key in sorted(jobs)}
        uses = {name: self._cache.node_use(name) for name in sorted(nodes)}
        delta = Delta(
            seq=self.seq,
            jobs=[job_row(job) for job in there.values() if job is not None],
            gone_jobs=[_gone(key) for key, job in there.items() if job is None],
            nodes=[],
            gone_nodes=[name for name, use in uses.items() if use is None],
        )
        return Change(delta=delta, nodes=[use for use in uses.values() if use is not None])


def _keep_last(kept: dict[Visibility, V], *, key: Visibility, value: V) -> None:
    """Keep the value as the newest one; that of the audience that asked longest ago goes."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > _MOST_SNAPSHOTS:
        del kept[next(iter(kept))]


def _groups(rows: Sequence[tuple[str, bytes]]) -> Iterator[bytes]:
    """The rows with commas between them, in groups: their ends follow from keys, so one that goes changes one group."""
    group = list[bytes]()
    for at, (key, row) in enumerate(rows):
        group += [row] if at == 0 else [b",", row]
        if zlib.crc32(key.encode()) % _GROUP == 0:
            yield b"".join(group)
            group = []
    yield b"".join(group)


def _digest(sees: Visibility) -> str:
    """What a caller sees, in a few letters."""
    names = "*" if sees.namespaces is None else "\n".join(sorted(sees.namespaces))
    return hashlib.blake2s(names.encode(), digest_size=6).hexdigest()


def _gone(key: str) -> GoneJob:
    namespace, _, name = key.partition("/")
    return GoneJob(namespace=namespace, name=name)
