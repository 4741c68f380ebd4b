"""The ledger: what is promised of which device. The engine's one mutable state.

Promises always follow from the claims: after each change of a node its columns are recomputed from all claims on it,
so that no sequence of updates can drift. Claims outlive their node's report: a node that disappears and returns, with
the same devices or others, meets the claims that still exist.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dovetail.api.gpunode import Cause
from dovetail.engine.ledger.node_labels import Domains
from dovetail.engine.ledger.node_table import LOG_LENGTH, ChangeLog, NodeTable
from dovetail.engine.ledger.partitions import Partitions, is_gpu, of_profile, seen_by
from dovetail.engine.ledger.promises import ClaimTable, Entry, promises
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.columns import Columns, Floats, Ints, Table, count_devices
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts, Totals
from dovetail.engine.model.node_row import NodeRow
from dovetail.engine.model.settings import Limits
from dovetail.gpu.models import Model
from dovetail.gpu.request import WHOLE_MILLI

# Rows that are kept in plain numbers, the last ones read. A row of 8 devices takes about 5 kB.
_ROWS_READ: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything that decides whether there is room. If two contents are equal, the same asks fit both ledgers."""

    claims: Mapping[str, Claim]
    columns: bytes
    limits: Limits
    labels: int = 0
    instances: tuple[tuple[NodeFacts | None, tuple[DeviceFacts, ...]], ...] = ()


class Prices(Protocol):
    """By what plans on a ledger are judged; `dovetail.engine.score.live_fragmentation` says how."""

    def of_copy(self, *, original: "Ledger") -> "Prices":
        """The prices of a copy of the ledger, which is `original`, made now."""
        ...


class Ledger:
    """Who holds what. Reported utilization is smoothed over `smoothing_seconds`.

    Its devices are GPUs; `of_profile` has the MIG instances of a profile in their place.
    Not thread-safe. The log of changes remembers `log_length` changes for readers of `touched_since`.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        smoothing_seconds: float = 120.0,
        log_length: int = LOG_LENGTH,
        profile: str = "",
    ) -> None:
        self.limits = limits or Limits()
        # Empty where the devices are GPUs.
        self.profile = profile
        self._partitions = Partitions()
        # None: plans are judged by best fit.
        self.prices: Prices | None = None
        # `_table` and `_log` are these, without stale rows.
        self._rows = NodeTable(limits=self.limits, smoothing_seconds=smoothing_seconds)
        self._touched = ChangeLog(length=log_length)
        self._claims = ClaimTable()
        # Nodes whose promises are computed before the next reading.
        self._stale: dict[str, None] = {}
        # Each shape of pod asks for the rows that have changed, which are mostly the same few.
        self._rows_read: dict[int, tuple[Table, int, NodeRow]] = {}

    # --- Nodes and devices -------------------------------------------------------------------------------------

    def set_node(self, facts: NodeFacts) -> None:
        """Apply what the Node object says."""
        self._rows.set_node(facts)
        self._recount(facts.name)

    def drop_node(self, name: str) -> None:
        """The Node is deleted. Claims on it stay until their pods are deleted."""
        row = self._table.row(name)
        if row is not None:
            self._table.drop_node(row)
            self._log.touch(row)

    def set_devices(
        self,
        name: str,
        *,
        devices: Iterable[DeviceFacts],
        cpu_load: float = 0.0,
        now: float | None = None,
        note: str = "",
    ) -> None:
        """Apply what the agent reports; an empty report means no devices. `cpu_load` is the node's CPU, 0 to 1.

        `now` is the time of a monotonic clock in seconds, by which utilization is smoothed; without it the report
        counts in full. A `note` says why the measurements do not count.
        """
        known = tuple(devices)
        gpus = tuple(filter(is_gpu, known))
        if len(gpus) < len(known) or self._rows.instances(name):
            self._rows.set_instances(name, instances=tuple(device for device in known if device.mig))
        self._table.set_devices(name, devices=gpus, cpu_load=cpu_load, now=now, note=note)
        self._recount(name)

    def distrust(self, name: str, *, note: str) -> None:
        """Ignore what was measured on the node until the next report; `note` says why."""
        if self._table.row(name) is not None:
            self._table.set_note(name, note=note)
            self._recount(name)

    def set_tenant_limits(self, *, training_per_device: int, inference_per_device: int) -> None:
        """Apply other limits to all devices that have none of their own. Who is there already stays."""
        self.limits = replace(
            self.limits, training_per_device=training_per_device, inference_per_device=inference_per_device
        )
        for name in self._table.set_limits(self.limits):
            self._recount(name)

    def settle_utilization(self, now: float) -> None:
        """Move the smoothed utilization to the time `now`; call it every few seconds."""
        for row in self._table.settle_utilization(now):
            self._log.touch(row)

    # --- Claims ------------------------------------------------------------------------------------------------

    def commit(self, claim: Claim, *, hold_until: float | None = None) -> None:
        """Promise a claim. Never refuses: call `check` first. Replaces the claim with the same key.

        With `hold_until` the claim is a hold, which `expire_holds` drops after that time. Committing a claim again
        changes nothing: every status change of a bound pod does so.
        """
        for node in self._claims.put(Entry(claim, hold_until)):
            self._recount(node)

    def commit_all(self, claims: Iterable[Claim]) -> None:
        """Promise all `claims`, as `commit` does, and recompute each of their nodes once, before the next reading.

        So the pages of a long list compute each node once too. If `claims` fails half way, nothing is promised.
        """
        known = list(claims)
        self._stale |= dict.fromkeys(node for claim in known for node in self._claims.put(Entry(claim)))

    def release(self, key: str) -> Claim | None:
        """Remove the claim `key` and return it; None when there is none."""
        claim = self._claims.remove(key)
        if claim is not None:
            # Computed before the next reading: often several claims of a node end together.
            self._stale[claim.node] = None
        return claim

    @contextmanager
    def without(self, keys: Iterable[str]) -> Iterator[None]:
        """The ledger without the claims `keys`, inside the `with` block."""
        entries = [entry for key in keys if (entry := self._claims.get(key)) is not None]
        for entry in entries:
            self._claims.remove(entry.claim.key)
        nodes = dict.fromkeys(entry.claim.node for entry in entries)
        for node in nodes:
            self._recount(node)
        try:
            yield
        finally:
            nodes |= dict.fromkeys(node for entry in entries for node in self._claims.put(entry))
            for node in nodes:
                self._recount(node)

    def claim(self, key: str) -> Claim | None:
        """The claim `key`."""
        entry = self._claims.get(key)
        return entry.claim if entry else None

    def is_hold(self, key: str) -> bool:
        """Whether the claim `key` is a hold."""
        entry = self._claims.get(key)
        return entry is not None and entry.is_hold

    def expire_holds(self, now: float) -> list[Claim]:
        """Drop the holds that end by `now`, and return them."""
        entries = self._claims.all()
        due = [entry.claim for entry in entries if entry.hold_until is not None and entry.hold_until <= now]
        for claim in due:
            self.release(claim.key)
        return due

    def claims(self) -> list[Claim]:
        """All claims, including holds."""
        return [entry.claim for entry in self._claims.all()]

    def claims_on(self, name: str) -> list[Claim]:
        """The claims on one node."""
        return [entry.claim for entry in self._claims.on(name)]

    # --- Reading -----------------------------------------------------------------------------------------------

    def nodes(self) -> list[str]:
        """The names of the nodes that exist, in the order in which they were added."""
        known = self._table.columns["known"]
        return [name for row, name in enumerate(self._table.names) if known[row]]

    def name(self, row: int) -> str:
        """The node of a row; a node keeps its row for ever."""
        return self._table.names[row]

    def names(self, rows: Iterable[int]) -> list[str]:
        """The nodes of rows, in their order."""
        return list(map(self._table.names.__getitem__, rows))

    def rows(self, nodes: Sequence[str]) -> npt.NDArray[np.intp]:
        """The rows of nodes, [nodes]; -1 for unknown names. Only to read: callers share it."""
        return self._table.rows(nodes)

    @property
    def size(self) -> int:
        """The number of rows in use."""
        return len(self._table.names)

    @property
    def changes(self) -> int:
        """The number of changes so far: the position that `touched_since` takes."""
        return self._log.position

    def changed_at(self, name: str) -> int:
        """What `changes` was right after the node's last change; 0 for an unknown node."""
        row = self._table.row(name)
        return 0 if row is None else self._log.changed_at(row)

    def touched_since(self, position: int) -> Collection[int]:
        """The rows that changed after `changes` was `position`; all rows if the log does not reach back so far."""
        found = self._log.since(position)
        return range(self.size) if found is None else found

    def devices(self, name: str) -> tuple[DeviceFacts, ...]:
        """The devices of a node by index, as last reported."""
        return self._table.devices(name)

    def instances(self, name: str) -> tuple[DeviceFacts, ...]:
        """The MIG instances of a node by index, as last reported."""
        return self._table.instances(name)

    def everything(self, name: str) -> tuple[DeviceFacts, ...]:
        """The GPUs and the MIG instances of a node, as `set_devices` takes them."""
        return (*self._table.devices(name), *self._table.instances(name))

    def partitioned(self) -> list[str]:
        """The existing nodes with MIG instances."""
        known = self._table.columns["known"]
        return [name for name in self._table.partitioned if known[self._table.row(name)]]

    def of_profile(self, profile: str) -> "Ledger":
        """This ledger as a request sees it: without a profile itself, else with its MIG instances as the devices.

        Only to read. It shows what the ledger is now, and is asked for again after a change.
        """
        return self._partitions.of(profile, original=self) if profile and not self.profile else self

    def unmeasured_reason(self, name: str) -> str:
        """Why measurements of the node do not count; empty when they do."""
        return self._table.unmeasured_reason(name)

    def obstacle(self, name: str) -> str:
        """Why the node takes no pods; empty when it does."""
        return self._table.obstacle(name)

    def content(self) -> Content:
        """Everything that decides whether there is room. Measured load ranks nodes and is left out."""
        return Content(
            claims={entry.claim.key: entry.claim for entry in self._claims.all()},
            columns=self._table.columns.digest(without=("utilization", "cpu_load")),
            limits=self.limits,
            labels=self._table.labels.version,
            instances=tuple(
                (self.facts(name), tuple(replace(device, utilization=0.0) for device in self.instances(name)))
                for name in self.partitioned()
            ),
        )

    def domains(self, path: tuple[str, ...]) -> Domains:
        """The domains of the nodes with equal values of all labels of `path`."""
        return self._table.labels.domains(path)

    def place_of(self, node: str, *, labels: Sequence[str]) -> tuple[str, ...]:
        """The values of these labels of a node, in their order; empty where it has no such label."""
        row = self._table.row(node)
        return ("",) * len(labels) if row is None else self._table.labels.values(row, labels=labels)

    def columns(self, nodes: Sequence[str], *, without: str = "") -> Columns:
        """A copy of the columns of `nodes`, without the claim `without`. Unknown names get empty rows."""
        copied = self._table.columns.at(self.rows(nodes))
        own = self.claim(without)
        if own is not None and own.node in nodes:
            at = nodes.index(own.node)
            row = int(self.rows([own.node])[0])
            for name, value in self._promises(own.node, row=row, without=without).items():
                copied[name][at] = value
        return Columns(**copied)

    def facts(self, name: str) -> NodeFacts | None:
        """What the Node object of a node said last; None without one."""
        return self._table.facts(name)

    def one_machine(self) -> NodeFacts | None:
        """The only node of a queue of one's own machine; None in a cluster, which other nodes may join."""
        if int(self._table.columns["known"].sum()) != 1:
            return None
        (name,) = self.nodes()
        facts = self.facts(name)
        return facts if facts is not None and facts.one_machine else None

    def exists(self, name: str) -> bool:
        """Whether the node exists."""
        row = self._table.row(name)
        return row is not None and bool(self._table.columns["known"][row])

    def has_row(self, name: str) -> bool:
        """Whether the node exists or existed."""
        return self._table.row(name) is not None

    def node_row(self, name: str, *, without: str = "") -> NodeRow:
        """The columns of one node that has a row, without the claim `without`. Only to read: callers share it."""
        row = self._table.row(name)
        assert row is not None, "only for a node that has a row"
        own = self.claim(without)
        if own is None or own.node != name:
            return self._row_read(row)
        found = self._table.columns.row(row)
        for column, value in self._promises(name, row=row, without=without).items():
            setattr(found, column, value.tolist() if isinstance(value, np.ndarray) else value)
        return found

    def model_codes(self, admits: Callable[[Model], bool]) -> Ints:
        """Codes of the models, with their nominal sizes, for which `admits` is true, as in column `model`, [codes]."""
        return self._table.model_codes(admits)

    def models(self, *nodes: str) -> frozenset[Model]:
        """The models of the GPUs of the existing nodes, of these or of all, with their nominal sizes."""
        columns = self._table.columns
        there = columns["present"] & columns["known"][:, np.newaxis]
        rows = self.rows(nodes) if nodes else slice(None)
        return self._table.models(np.unique(columns["model"][rows][there[rows]]).tolist())

    def nominal_gb(self, code: int) -> int:
        """The nominal size in GB of the model with this code in the column `model`."""
        return self._table.nominal_gb(code)

    def model_names(self) -> list[str]:
        """The models by their code in the column `model`, in a form that `normalise` reads."""
        return self._table.model_names()

    def vendor_code(self, vendor: str) -> int:
        """The code of a vendor in the column `vendor`; -1 when no device has it."""
        return self._table.vendor_code(vendor)

    def resource_code(self, resource: str) -> int:
        """The code of a resource in the column `resource`; -1 when no node has it, 0 for none."""
        return self._table.resource_code(resource)

    @property
    def largest_mib(self) -> int:
        """Memory of the largest device without the driver's reserve; 0 without devices."""
        return int(self._table.columns["total"].max())

    def serves(self, resource: str, *, nodes: Sequence[str] | None = None) -> bool:
        """Whether one of `nodes` (default: all) has devices of the device plugin's `resource`; empty: managed ones."""
        columns = self._table.columns
        kind = columns["resource"] == self.resource_code(resource) if resource else columns["managed"]
        there = columns["known"] & kind & (count_devices(columns["present"]) > 0)
        if nodes is None:
            return bool(there.any())
        rows = self.rows(nodes)
        return bool(there[rows[rows >= 0]].any())

    def devices_with(self, share_milli: int, *, nodes: Sequence[str]) -> Ints:
        """How many devices of each node have that share left, [nodes], whatever else keeps tenants away; 0: no node."""
        return self._table.devices_with(share_milli, rows=self.rows(nodes))

    def device_counts(self, model: Model | None = None) -> tuple[int, int]:
        """The number of devices of a model, or of all, on existing nodes, and how many of them are healthy."""
        columns = self._table.columns
        there = columns["present"] & columns["known"][:, np.newaxis]
        if model is not None:
            there &= np.isin(columns["model"], self.model_codes(model.admits))
        return int(there.sum()), int((there & columns["healthy"]).sum())

    def totals(self) -> Totals:
        """Sums over the existing nodes and their healthy devices."""
        columns = self._table.columns
        counted = columns["present"] & columns["healthy"] & columns["known"][:, np.newaxis]
        devices = int(counted.sum())
        return Totals(
            devices=devices,
            milli=WHOLE_MILLI * devices,
            promised_milli=WHOLE_MILLI * devices - int(columns["share_left"][counted].sum()),
            memory_mib=int(columns["total"][counted].sum()),
            promised_mib=int(columns["promised"][counted].sum()),
            holds=sum(entry.is_hold for entry in self._claims.all()),
        )

    def closed_devices(self) -> Counter[Cause]:
        """How many GPUs of the existing nodes take no new work, by the first cause."""
        columns, found = self._table.columns, Counter[Cause]()
        there = (count_devices(columns["present"]) > 0) & columns["known"]
        for row in np.flatnonzero(there).tolist():
            name = self.name(row)
            facts = self.facts(name)
            of_node = () if facts is None else facts.unavailable
            causes = ((*of_node, *device.unavailable) for device in self.devices(name))
            found.update(each[0].cause for each in causes if each)
        return found

    def copy(self, *, with_claims: bool = True) -> "Ledger":
        """An independent ledger with the same content and prices. Its log starts empty.

        Without claims, the copy is expensive: each node that has some is computed again.
        """
        other: Ledger = copy(self)
        other.prices = None if self.prices is None else self.prices.of_copy(original=self)
        other._rows, other._touched = self._table.copy(), ChangeLog(length=LOG_LENGTH)
        other._partitions, other._stale, other._rows_read = Partitions(), {}, {}
        other._claims = self._claims.copy() if with_claims else ClaimTable()
        if not with_claims:
            for name in self._claims.nodes():
                other._recount(name)
        return other

    def partition(self, profile: str) -> "Ledger":
        """An empty ledger for a profile that always has the claims of this one."""
        other = Ledger(limits=self.limits, profile=profile)
        other._claims = self._claims
        return other

    def follow(self, original: "Ledger", *, rows: Collection[int]) -> None:
        """Take over what these `rows` of the `original` are now. Only for the ledger of a profile."""
        for row in sorted(rows):
            name = original.name(row)
            facts = original.facts(name)
            if facts is not None:
                self._table.set_node(seen_by(facts, profile=self.profile))
            instances = of_profile(original.instances(name), profile=self.profile)
            note = original.unmeasured_reason(name)
            self._table.set_devices(name, devices=instances, cpu_load=0.0, now=None, note=note)
            own = self._table.row(name)
            if own is not None and not original.exists(name):
                self._table.drop_node(own)
            self._recount(name)

    # --- Inside ------------------------------------------------------------------------------------------------

    def _row_read(self, row: int) -> NodeRow:
        """The columns of a row, read again only after a change of the row, or of the width of all rows."""
        columns, changed_at = self._table.columns, self._log.changed_at(row)
        known = self._rows_read.pop(row, None)
        if known is None or known[0] is not columns or known[1] != changed_at:
            known = columns, changed_at, columns.row(row)
        self._rows_read[row] = known
        if len(self._rows_read) > _ROWS_READ:
            del self._rows_read[next(iter(self._rows_read))]
        return known[2]

    @property
    def _table(self) -> NodeTable:
        if self._stale:
            self._settle()
        return self._rows

    @property
    def _log(self) -> ChangeLog:
        if self._stale:
            self._settle()
        return self._touched

    def _settle(self) -> None:
        stale, self._stale = self._stale, {}
        for name in stale:
            self._recount(name)

    def _recount(self, name: str) -> None:
        row = self._rows.row(name)
        if row is None:
            return
        for column, value in self._promises(name, row=row).items():
            self._rows.columns[column][row] = value
        self._touched.touch(row)

    def _promises(self, name: str, *, row: int, without: str = "") -> dict[str, list[int] | list[float] | Floats | int]:
        entries = self._claims.on(name, without=without)
        return promises(entries, table=self._rows, row=row, limits=self.limits, profile=self.profile)
