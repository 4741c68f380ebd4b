"""What MIG instances count as, computed again from a plain list of them: whole nodes, models, faults, odd profiles."""

from dataclasses import replace
from random import Random

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.ledger.partitions import instances_milli, profiles
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.gpu.models import normalise
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.limits.guarantees import capacity_of
from tests.core.engine.builders import make_device
from tests.seeds import seeds

# By profile: its slices of seven, and its GB. No request can have the last one.
PROFILES = {"1g.10gb": (1, 10), "1g.20gb": (1, 20), "2g.20gb": (2, 20), "3g.40gb": (3, 40), "odd": (0, 0)}
MODELS = ("A100", "H100")


def drawn(random: Random, *, node: str) -> list[DeviceFacts]:
    """GPUs and instances of a node, of which some are broken."""
    found = []
    for index in range(random.randint(0, 6)):
        profile = random.choice(["", "", *PROFILES])
        device = make_device(node, index, model=random.choice(MODELS), healthy=random.random() < 0.7)
        found.append(replace(device, uuid=f"{node}/{index}", mig=profile) if profile else device)
    return found


def milli(devices: list[DeviceFacts], *, model: str | None, healthy: bool) -> int:
    """Seven slices of a profile are a GPU, over all of its instances together; whole GPUs are one each."""
    counts = {
        profile: sum(
            device.mig == profile and model in {None, device.model} and (device.healthy or not healthy)
            for device in devices
        )
        for profile in ("", *PROFILES)
    }
    parts = sum(1000 * counts[profile] * slices // 7 for profile, (slices, _) in PROFILES.items())
    return counts[""] * WHOLE_MILLI + parts


@seeds(60)
def test_instances_count_by_their_compute_those_that_are_broken_too_where_nothing_is_said_of_health(seed: int) -> None:
    random, ledger, there = Random(seed), Ledger(), dict[str, list[DeviceFacts]]()
    for name in "abcd":
        there[name] = drawn(random, node=name)
        ledger.set_node(NodeFacts(name=name, cpu_milli=64_000, memory_mib=262_144))
        ledger.set_devices(name, devices=there[name])
    gone = random.choice(sorted(there))
    ledger.drop_node(gone)
    there.pop(gone)
    devices = [device for of_node in there.values() for device in of_node]
    instances = [device for device in devices if device.mig]
    wanted = [normalise(model) for model in MODELS]
    assert instances_milli(ledger, models=wanted) == [
        (milli(instances, model=model, healthy=False), milli(instances, model=model, healthy=True))
        for model in (None, *MODELS)
    ]
    capacity = capacity_of(ledger, models=MODELS)
    for resource, model in zip(capacity.known, (None, *MODELS), strict=True):
        assert capacity.known[resource] == milli(devices, model=model, healthy=False)
        assert capacity.usable[resource] == milli(devices, model=model, healthy=True)
    offered = {device.mig for device in instances} - {"odd"}
    assert profiles(ledger) == sorted(offered, key=lambda profile: (*PROFILES[profile], profile))
