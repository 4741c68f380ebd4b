"""What a Node says of its GPUs before an agent reports, computed again from its labels and resources."""

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.cluster.node_kind import MAX_DEVICES, labelled_devices, serving
from dovetail.gpu.device_plugins import DEFAULT_VENDORS

# Each as: label, what it says, its model's usual size in MiB; the table knows no Prototype.
MODELS = (("NVIDIA-A100-SXM4", 81920), ("Tesla-V100-SXM2-32GB", 32768), ("Prototype", 0))
PROFILES = {"1g.10gb": 10240, "3g.40gb": 40960, "2g.20gb+me": 20480}
NVIDIA, AMD, OURS = "nvidia.com/gpu.product", "amd.com/gpu.product-name", names.LABEL_MODEL


def some(random: Random, *values: Any) -> Any:
    return random.choice([None, *values])


def made(random: Random) -> Node:
    """A node with any of the labels and resources that plugins and people write; some of them are no numbers."""
    labels = {label: some(random, *(model for model, _ in MODELS)) for label in (NVIDIA, AMD, OURS)}
    labels["nvidia.com/gpu.memory"] = some(random, "16384", "many", "0")
    labels[names.LABEL_MANAGED] = some(random, "true", "false")
    labels["nvidia.com/mig-1g.10gb.memory"] = some(random, "9728")
    labels["nvidia.com/mig-2g.20gb.me.memory"] = some(random, "19968")
    capacity: dict[str, Any] = {"cpu": "64"}
    for resource in ("nvidia.com/gpu", "amd.com/gpu"):
        capacity |= {resource: "4"} if random.random() < 0.4 else {}
    for profile in PROFILES:
        capacity |= {f"nvidia.com/mig-{profile.replace('+', '.')}": "2"} if random.random() < 0.4 else {}
    # A plugin that is down leaves its capacity; one device more than a node can have is none.
    usable = {name: random.choice([amount, amount, "0", "1", "200"]) for name, amount in capacity.items()}
    return msgspec.convert(
        {
            "metadata": {"name": "n", "labels": {name: value for name, value in labels.items() if value is not None}},
            "status": {"capacity": capacity, "allocatable": usable},
        },
        Node,
    )


def number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


@pytest.mark.parametrize("seed", range(10))
def test_the_devices_of_a_node_without_an_agent_are_those_of_its_labels(seed: int) -> None:
    random = Random(seed)
    for _ in range(30):
        look(random)


def look(random: Random) -> None:
    """One node."""
    node, specs = made(random), random.choice([{}, {"A100": 40.0}, {"PROTOTYPE": 16.0}])
    labels, usable = node.metadata.labels, {name: int(str(it)) for name, it in node.status.allocatable.items()}
    managed = labels.get(names.LABEL_MANAGED) == "true"
    plugins = [name for name in ("nvidia.com/gpu", "amd.com/gpu") if name in node.status.capacity]
    instances = [name for name in node.status.capacity if "mig" in name]
    serves = serving(node, vendors=DEFAULT_VENDORS, drivers=("gpu.nvidia.com",))
    expected = plugins[:1] or (instances[:1] if managed else [])
    assert (serves.managed, [serves.resource][: len(expected)]) == (managed, expected)
    assert (serves.resource == "", serves.drivers) == (not expected, ("gpu.nvidia.com",))
    assert serves.count == (usable[expected[0]] if expected else 0)
    assert bool(serves.conflict) == managed

    model = labels.get(NVIDIA) or labels.get(AMD) or labels.get(OURS) or ""
    usual = dict(MODELS).get(model, 0)
    if (model, *specs) in {(MODELS[0][0], "A100"), (MODELS[2][0], "PROTOTYPE")}:
        usual = 1024 * int(next(iter(specs.values())))
    found = labelled_devices(node, serves=serves, vendors=DEFAULT_VENDORS, specs=specs)
    assert [device.index for device in found] == list(range(len(found)))
    assert len({device.uuid for device in found}) == len(found)
    assert {device.model for device in found} <= {model}
    gpus = [device for device in found if not device.mig]
    assert len(gpus) == min(MAX_DEVICES, serves.count)
    assert {device.memory_mib for device in gpus} <= {number(labels.get("nvidia.com/gpu.memory")) or usual}
    assert {device.vendor for device in gpus} <= {"amd" if serves.resource == "amd.com/gpu" else "nvidia"}
    of_profile = Counter(device.mig for device in found if device.mig)
    for profile, mib in PROFILES.items():
        resource = f"nvidia.com/mig-{profile.replace('+', '.')}"
        assert of_profile[profile] == (0 if managed else min(MAX_DEVICES, usable.get(resource, 0)))
        sizes = {device.memory_mib for device in found if device.mig == profile}
        assert sizes <= {number(labels.get(f"{resource}.memory")) or mib}
