"""What fits: `check` for one node with its devices, `screen` for many nodes. Neither changes the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.filter import multi_container, single_node
from dovetail.engine.filter.causes import NODE_CAUSES, Cause, causes_of
from dovetail.engine.filter.device_choice import DeviceValues, best_fit_values, choose_devices
from dovetail.engine.filter.feasibility import Feasibility
from dovetail.engine.filter.messages import OF_DEVICES, ask_words, node_words, own_words, refusal, refused
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.columns import Bools, Ints
from dovetail.engine.model.refusals import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A node that fits, and the claim to commit. `note` says why measurements of the node do not count, if so."""

    claim: Claim
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """The nodes that fit, in the order of the question, and the refusal of each other node."""

    fits: list[str]
    refusals: dict[str, Refusal]


def check(
    ledger: Ledger, *, ask: Ask, node: str, key: str, device_values: DeviceValues = best_fit_values
) -> Fit | Refusal:
    """Whether `ask` fits on `node`, and the devices that it would get. The claim `key` itself does not count.

    `device_values` says how good each device of the node is for the ask; higher is better.
    """
    ledger = ledger.of_profile(ask.profile)
    if single_node.covers(ask) and ledger.has_row(node):
        alone = single_node.judge(ledger, ask=ask, node=node, key=key)
        if alone.fits:
            devices = () if ask.gpu is None else choose_devices(alone.devices(), values=device_values)
            return _fit(ledger, ask=ask, node=node, key=key, devices=devices, guard_fraction=alone.guard_fraction)
    judged = Judgement(ledger, ask=ask, nodes=[node], key=key)
    found = judged.refusal(0)
    if found is not None:
        return found
    return _fit(
        ledger,
        ask=ask,
        node=node,
        key=key,
        devices=judged.devices(0, values=device_values),
        guard_fraction=judged.guard_fraction,
        movable=bool(judged.movable[0]),
    )


def _fit(
    ledger: Ledger,
    *,
    ask: Ask,
    node: str,
    key: str,
    devices: tuple[AllocatedDevice, ...],
    guard_fraction: float,
    movable: bool = False,
) -> Fit:
    unnamed = ask.gpu.count if ask.gpu is not None and ask.resource else 0
    return Fit(
        claim=Claim(
            key=key,
            node=node,
            mode=ask.mode,
            devices=devices,
            cpu_milli=ask.cpu_milli,
            memory_mib=ask.memory_mib,
            guard_fraction=None if ask.mode == "Exclusive" or ask.gpu is None else guard_fraction,
            workload=ask.workload,
            movable=movable,
            unnamed=0 if ask.profile else unnamed,
            resource=ask.resource,
            instances=((ask.profile, unnamed),) if ask.profile and unnamed else (),
        ),
        note=ledger.unmeasured_reason(node),
    )


def screen(ledger: Ledger, *, ask: Ask, nodes: Sequence[str], key: str) -> Screening:
    """Which of `nodes` fit, and why each other node does not. The claim `key` itself does not count."""
    judged = Judgement(ledger, ask=ask, nodes=nodes, key=key)
    fits = judged.fits.tolist()
    refusals = {name: found for row, name in enumerate(nodes) if (found := judged.refusal(row)) is not None}
    return Screening(fits=[name for name, fit in zip(nodes, fits, strict=True) if fit], refusals=refusals)


class Judgement(Feasibility):
    """One ask on some nodes: which fit, with which devices, and why the others do not."""

    @cached_property
    def fits(self) -> Bools:
        """Which nodes fit, [n]."""
        return self.first_cause < 0 if self.ask.more else self.fits_first

    @cached_property
    def first_cause(self) -> Ints:
        """For each node the index of the cause that excludes it, as `outline` takes it; -1 where the ask fits, [n]."""
        if not self.ask.more and self.fits_first.all():
            # The usual case after a change: the node still fits, and needs no causes.
            return np.full(len(self.nodes), -1, dtype=np.int64)
        stacked = np.stack([cause.nodes for cause in self._causes])
        return np.where(stacked.any(axis=0), stacked.argmax(axis=0), -1)

    def outline(self, cause: int, *, node: str) -> Refusal:
        """A cause in the words that all its nodes share, without one node's numbers.

        `node` names one of them where `is_nodes_own`; empty for the words of all nodes.
        """
        found = self._causes[cause]
        if cause < NODE_CAUSES:
            says = node_words(self.ledger, name=node)
        elif found.says.message:
            says = found.says
        else:
            ask = (found.container or self).ask
            says = (
                own_words(found.kind, ledger=self.ledger, name=node, ask=ask)
                if node
                else ask_words(found.kind, ask=ask)
            )
        details = says.clauses
        return Refusal(kind=found.kind, text=says.message, message=says.message, details=details, text_details=details)

    def is_nodes_own(self, cause: int) -> bool:
        """Whether the words of a cause depend on the node, so that `outline` needs its name."""
        return cause < NODE_CAUSES or self._causes[cause].kind in OF_DEVICES

    def refusal(self, row: int) -> Refusal | None:
        """The first cause that excludes this node, with the node's numbers; None where the ask fits."""
        at = int(self.first_cause[row])
        if at < 0:
            return None
        cause = self._causes[at]
        if at < NODE_CAUSES:
            says = node_words(self.ledger, name=self.nodes[row])
            return refused(cause.kind, node=self.nodes[row], own=says, shared=says)
        if cause.says.message:
            return refused(cause.kind, node=self.nodes[row], own=cause.says, shared=cause.says)
        left = int(cause.left[row]) if cause.left.size else 0
        return refusal(cause.kind, masks=cause.container or self, row=row, left=left)

    def devices(self, row: int, *, values: DeviceValues = best_fit_values) -> tuple[AllocatedDevice, ...]:
        """The devices that the ask would get on a node that fits. Empty where kubelet picks them."""
        if self.ask.gpu is None or self.ask.resource:
            return ()
        if self.ask.more:
            return multi_container.choose_devices(self, row=row, values=values)
        return choose_devices(self.free_of(row), values=values)

    def claim(self, row: int, *, key: str, devices: tuple[AllocatedDevice, ...]) -> Claim:
        """The claim `key` of one pod on a node that fits, with these devices of it."""
        return _fit(
            self.ledger,
            ask=self.ask,
            node=self.nodes[row],
            key=key,
            devices=devices,
            guard_fraction=self.guard_fraction,
            movable=bool(self.movable[row]),
        ).claim

    @cached_property
    def _causes(self) -> list[Cause]:
        return causes_of(self)
