"""Faults over the life of a node, compared with a plain list of what is broken.

Devices fail and fall off their bus, drivers are reloaded and replaced, agents and nodes restart, and people say what
they have repaired. Each report follows from the one before it, as in the API server. Faults come at fractions of
seconds, reports and people's words have whole ones.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.api.builtin import Node
from dovetail.api.gpunode import LOST, Assignment, GPUNode, GPUNodeSpec, GPUNodeStatus
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Fault, Inventory, Sample
from dovetail_agent.feature.runner import FeatureRunner
from dovetail_agent.report.collect import Collector
from tests.agent.builders import NOON, make_node

CARDS: Final = range(3)
REASONS: Final = ("Xid79FellOffTheBus", "Xid48DoubleBitEcc")


def second(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


class World:
    """A node, its agent's provider, and what is broken: the time of each fault by card and reason."""

    name = "made up"

    def __init__(self) -> None:
        self.now = NOON
        self.status: GPUNodeStatus | None = None
        self.mended: dict[str, str] = {}
        self.boots = self.drivers = 1
        self.present = set(CARDS)
        # What the agent's process remembers.
        self.remembered: dict[tuple[int, str], datetime] = {}
        self.loaded_at: datetime | None = None
        self.broken: dict[tuple[int, str], datetime] = {}
        # Of cards that do not answer: those that the last reports have.
        self.lost: set[int] = set()
        self.known = set(CARDS)
        self.collector = Collector(self, vendors=DEFAULT_VENDORS, beside=FeatureRunner())
        self.report()

    def take(self, what: str, *, card: int, seconds: float) -> None:
        """Let time pass, and something happen."""
        self.now += timedelta(seconds=seconds)
        match what:
            case "agent":
                self.remembered, self.loaded_at = {}, None
            case "boot":
                self.boots += 1
                self.take("agent", card=card, seconds=0)
                self.forget(CARDS)
                self.lost, self.known = set(), set(self.present)
            case "driver" | "reload":
                self.drivers += what == "driver"
                self.loaded_at = self.now
                self.present = set(CARDS)
                self.forget(CARDS)
            case "repair":
                self.mended[f"GPU-{card}"] = second(self.now)
                self.forget([card])
                self.known -= self.lost & {card}
            case "leave":
                self.present.discard(card)
                # Which of the two came first in a second is not known.
                if self.status is not None and self.mended.get(f"GPU-{card}", "") >= (self.status.observed_at or ""):
                    self.known.discard(card)
            case "return":
                self.present.add(card)
            case _ if card in self.present:
                self.remembered[card, what] = self.now
                if second(self.now) > self.mended.get(f"GPU-{card}", ""):
                    self.broken[card, what] = self.now
        self.known |= self.present
        self.lost = self.known - self.present

    def forget(self, cards: Sequence[int]) -> None:
        self.broken = {key: at for key, at in self.broken.items() if key[0] not in cards}

    # --- the provider -------------------------------------------------------------------------------------------

    def serves(self, node: Node) -> bool:
        return bool(node)

    def listen(self, news: Callable[[], None]) -> None:
        """Nobody waits."""

    async def reshape(self, node: Node, *, card: str, profiles: Sequence[str]) -> str:
        raise NotImplementedError

    def assignments(self, *_given: object, **_options: object) -> list[Assignment]:
        return []

    def inventory(self, node: Node, *, previous: GPUNodeStatus | None = None) -> Inventory:
        del node, previous
        devices = [
            DeviceInfo(
                index=card,
                uuid=f"GPU-{card}",
                vendor="nvidia",
                model="H100",
                memory_mib=81559,
                pci_bus_id=f"0000:{card:02x}:00.0",
                loaded_at=self.loaded_at,
            )
            for card in sorted(self.present)
        ]
        return Inventory(devices=tuple(devices), driver_version=f"580.{self.drivers}")

    def sample(self, inventory: Inventory, *, node: Node, tenants: Sequence[NodeTenant], now: datetime) -> Sample:
        del node, tenants, now
        return Sample(
            devices=tuple(
                DeviceSample(
                    faults=tuple(
                        Fault(reason=reason, at=at)
                        for (card, reason), at in self.remembered.items()
                        if card == info.index
                    )
                )
                for info in inventory.devices
            )
        )

    # --- the report ---------------------------------------------------------------------------------------------

    def report(self) -> None:
        """A look of the agent, and what has to be in its report."""
        node = make_node(devices=None, boot=f"boot-{self.boots}")
        gpunode = GPUNode(
            metadata=ObjectMeta(name="a"),
            spec=GPUNodeSpec(mended=dict(self.mended)),
            status=self.status or GPUNodeStatus(),
        )
        _, look = self.collector.collect(node, gpunode=gpunode if self.status else None, tenants=[], now=self.now)
        self.status = look.status
        found = {device.index: device for device in self.status.devices}
        assert set(found) == self.present | self.lost
        for card in self.lost:
            assert found[card].health_reason == LOST
        for card in self.present:
            told = {fault.reason: fault.at for fault in found[card].faults}
            assert told == self.faults_of(card)
            assert (found[card].health == "Unhealthy") == bool(told)
            assert not told or found[card].health_reason in told

    def faults_of(self, card: int) -> Mapping[str, str]:
        return {reason: second(at) for (at_card, reason), at in self.broken.items() if at_card == card}


STEPS: Final = st.tuples(
    st.sampled_from([*REASONS, *REASONS, "agent", "boot", "driver", "reload", "repair", "leave", "return"]),
    st.sampled_from(CARDS),
    st.sampled_from([0.2, 0.7, 1.0, 3600.0]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=16))
@example([("Xid79FellOffTheBus", 0, 0.7), ("repair", 0, 0.2)])
@example([("reload", 0, 0.2), ("Xid79FellOffTheBus", 0, 0.2)])
@example([("repair", 0, 1.0), ("agent", 0, 1.0), ("leave", 0, 3600.0)])
def test_a_fault_counts_until_it_is_over_and_no_longer(steps: list[tuple[str, int, float]]) -> None:
    world = World()
    for what, card, seconds in steps:
        world.take(what, card=card, seconds=seconds)
        world.report()
