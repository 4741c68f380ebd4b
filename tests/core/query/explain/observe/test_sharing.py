"""HAMi's and KAI's books: parts of devices, as their own annotations and labels say."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.api.builtin import Pod
from dovetail.cluster.observed import PlacedPod
from dovetail.query.explain.observe import hami
from dovetail.query.explain.observe.demands import demand_of
from tests.core.query.explain.observe.builders import (
    GPU,
    look,
    make_hami_node,
    make_kai_group,
    make_node,
    make_pod,
    why,
)

ROOT = Path(__file__).parents[5]
FOREIGN = Path(os.environ.get("DOVETAIL_FOREIGN") or ROOT.parent / "shared" / "foreign")


def shared(name: str = "p", *, mem: int | None = None, cores: int | None = None, **more: Any) -> PlacedPod:
    """A pod that asks HAMi for a part of a device."""
    limits = {GPU: "1"} | ({} if mem is None else {"nvidia.com/gpumem": str(mem)})
    limits |= {} if cores is None else {"nvidia.com/gpucores": str(cores)}
    return make_pod(name, limits=limits, schedulerName="hami-scheduler", **more)


def given(name: str, text: str, **more: Any) -> PlacedPod:
    return shared(name, on="h1", annotations={hami.ALLOCATED: text}, **more)


@pytest.mark.parametrize(
    ("pod", "held", "reason"),
    [
        (shared(mem=8000), ["h1-0,NVIDIA,8000,0:;"], "NotSeen"),
        (shared(mem=8385), ["h1-0,NVIDIA,8000,0:;"], "Devices"),
        (shared(mem=16384), [], "NotSeen"),
        (shared(mem=16384), ["h1-0,NVIDIA,1,0:;"], "Devices"),
        (shared(mem=16385), [], "TooLarge"),
        (shared(mem=1000, cores=60), ["h1-0,NVIDIA,1000,50:;"], "Devices"),
        (shared(mem=1000, cores=50), ["h1-0,NVIDIA,1000,50:;"], "NotSeen"),
        # All compute means the device alone, and a device whose compute is given out takes nobody without a limit.
        (shared(mem=1000, cores=100), ["h1-0,NVIDIA,1000,0:;"], "Devices"),
        (shared(mem=1000), ["h1-0,NVIDIA,1000,100:;"], "Devices"),
        # A pod that says no memory gets all of it.
        (shared(), ["h1-0,NVIDIA,1,0:;"], "Devices"),
        (shared(), [], "NotSeen"),
    ],
)
def test_a_part_fits_as_hamis_own_rules_say(pod: PlacedPod, held: Sequence[str], reason: str) -> None:
    pods = [given(f"t{at}", text) for at, text in enumerate(held)]
    assert why(pod, nodes=[make_hami_node("h1")], pods=pods).reason == reason


def test_hamis_tenants_are_limited_by_the_plugins_count() -> None:
    node = make_hami_node("h1", count=2)
    held = [given("a", "h1-0,NVIDIA,10,0:;"), given("b", "h1-0,NVIDIA,10,0:;")]
    assert why(shared(mem=10), nodes=[node], pods=held).reason == "Devices"


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"nvidia.com/use-gputype": "A100"}, "TooLarge"),
        ({"nvidia.com/use-gputype": "A100,t4"}, "NotSeen"),
        ({"nvidia.com/nouse-gputype": "T4"}, "TooLarge"),
    ],
)
def test_hamis_annotations_admit_devices_by_model(annotations: dict[str, str], reason: str) -> None:
    assert why(shared(mem=10, annotations=annotations), nodes=[make_hami_node("h1")]).reason == reason


def test_the_map_counts_hamis_devices_and_not_what_its_plugin_advertises() -> None:
    node = make_hami_node("h1", devices=[{}, {}])
    held = [given("a", "h1-0,NVIDIA,4096,0:;"), given("b", "h1-0,NVIDIA,0,50:;")]
    (row,) = look(nodes=[node], pods=held).nodes
    assert (row.system, row.devices, row.promised, row.free) == ("HAMi", 2, 0.5, 1.5)
    assert [(each.name, each.devices) for each in row.holders] == [("a", 0.25), ("b", 0.5)]


def test_a_broken_device_of_hami_takes_nobody() -> None:
    node = make_hami_node("h1", devices=[{"health": False}])
    assert why(shared(mem=10), nodes=[node]).reason == "TooLarge"


def test_the_old_form_of_hamis_register_is_read_too() -> None:
    text = "GPU-1,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-2,10,32768,100,NVIDIA-Tesla V100,0,false:"
    devices = hami.devices_of(make_node(annotations={hami.REGISTER: text}))
    assert [(each.uuid, each.memory_mib, each.healthy) for each in devices] == [
        ("GPU-1", 32768, True),
        ("GPU-2", 32768, False),
    ]


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"id": 3}]', "a,b:c", "[1]", "x" * 9000])
def test_an_unreadable_register_breaks_nothing(text: str) -> None:
    node = make_node("h1", annotations={hami.REGISTER: text})
    assert look(nodes=[node], pods=[shared(mem=10), given("a", text)]).pods[0].name == "p"


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        ({"gpu-fraction": "0.5"}, "NotSeen"),
        ({"gpu-fraction": "0.6"}, "Devices"),
        ({"gpu-memory": "8192"}, "NotSeen"),
        ({"gpu-memory": "8193"}, "Devices"),
        ({"gpu-memory": "20000"}, "TooLarge"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, "TooLarge"),
    ],
)
def test_a_fraction_fits_beside_the_fractions_of_its_device(asks: dict[str, str], reason: str) -> None:
    node = make_node("k1", gpus=1, labels={"nvidia.com/gpu.memory": "16384"})
    pods = make_kai_group("g", on="k1", parts=["0.25", "0.25"])
    assert why(make_pod(gpus=None, annotations=asks), nodes=[node], pods=pods).reason == reason


def test_the_map_counts_a_shared_device_by_its_fractions_and_names_those_that_share_it() -> None:
    pods = [*make_kai_group("g", on="k1", parts=["0.25", "0.5"]), make_pod("whole", on="k1")]
    (row,) = look(nodes=[make_node("k1", gpus=4)], pods=pods).nodes
    assert (row.system, row.promised, row.free) == ("KAI", 1.75, 2.25)
    assert {each.name: each.devices for each in row.holders} == {"g-0": 0.25, "g-1": 0.5, "whole": 1.0}


def published() -> list[Path]:
    return [path for folder in ("hami", "kai") for path in sorted((FOREIGN / folder).glob("*.yaml"))]


@pytest.mark.parametrize("path", published(), ids=lambda path: path.name)
def test_published_pods_of_hami_and_kai_have_a_demand_that_can_be_read(path: Path) -> None:
    pods = [each for each in yaml.safe_load_all(path.read_text("utf-8")) if each and each.get("kind") == "Pod"]
    for pod in pods:
        demand = demand_of(msgspec.convert(pod, Pod))
        if pod["metadata"]["name"].startswith("cpu-only"):
            assert demand is None
        else:
            assert demand is not None
            assert (bool(demand.words), demand.problem) == (True, "")
