"""GPUs in MIG mode for tests of the planner, with the slots that the driver of an H100 with 80 GB reports."""

from collections.abc import Sequence
from dataclasses import replace

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.gpu import mig
from dovetail.gpu.geometry import Slot
from dovetail.queue.reshaping.cards import Card, Instance
from tests.core.engine.builders import make_device

H100_SLOTS = tuple(
    Slot(profile=profile, size=size, starts=tuple(starts), count=len(starts))
    for profile, size, starts in (
        ("1g.10gb", 1, range(7)),
        ("1g.20gb", 2, range(0, 8, 2)),
        ("2g.20gb", 2, range(0, 6, 2)),
        ("3g.40gb", 4, (0, 4)),
        ("4g.40gb", 4, (0,)),
        ("7g.80gb", 8, (0,)),
    )
)


def make_card(node: str, index: int, *profiles: str) -> Card:
    uuid = f"GPU-{node}-{index}"
    instances = tuple(Instance(uuid=f"{uuid}-{at}", profile=profile) for at, profile in enumerate(profiles))
    return Card(node=node, uuid=uuid, index=index, model="H100", slots=H100_SLOTS, instances=instances)


def add_cards(ledger: Ledger, node: str, *cards: Card, **facts: object) -> None:
    ledger.set_node(NodeFacts(name=node, **({"cpu_milli": 64_000, "memory_mib": 262_144} | facts)))  # type: ignore[arg-type]
    ledger.set_devices(node, devices=devices_of(cards))


def devices_of(cards: Sequence[Card]) -> list[DeviceFacts]:
    instances = [(card, instance) for card in cards for instance in card.instances]
    return [
        replace(
            make_device(card.node, len(cards) + at, model="H100", memory_mib=mig.memory_mib(instance.profile)),
            uuid=instance.uuid,
            mig=instance.profile,
        )
        for at, (card, instance) in enumerate(instances)
    ]


def take(ledger: Ledger, card: Card, *, instance: int, key: str = "tenant") -> None:
    taken = card.instances[instance]
    device = AllocatedDevice(index=0, uuid=taken.uuid, share_milli=1000, memory_mib=0, mig=taken.profile)
    ledger.commit(Claim(key=key, node=card.node, devices=(device,)))
