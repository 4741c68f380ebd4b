import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.gpu.models import (
    Model,
    by_family,
    known_families,
    memory_mib,
    model_of,
    nominal_gb,
    normalise,
    vendor_of,
)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Tesla V100-SXM2-32GB", Model("V100", 32)),
        ("V100M32", Model("V100", 32)),
        ("v100", Model("V100")),
        ("NVIDIA A100-SXM4-80GB", Model("A100", 80)),
        ("NVIDIA GeForce RTX 3090", Model("RTX3090")),
        ("3090", Model("RTX3090")),
        ("NVIDIA RTX A6000", Model("A6000")),
        ("NVIDIA H100 80GB HBM3", Model("H100", 80)),
        ("NVIDIA H100 PCIe", Model("H100")),
        ("AMD Instinct MI300X", Model("MI300X")),
        ("Ascend910B", Model("910B")),
        ("Something New 7", Model("SOMETHINGNEW7")),
    ],
)
def test_many_spellings_are_one_model(name: str, model: Model) -> None:
    assert normalise(name) == model


@pytest.mark.parametrize(
    ("name", "mib"), [("T4", 16384), ("V100M16", 16384), ("A100", 81920), ("RTX 4090", 24576), ("X9", None)]
)
def test_memory_is_by_the_name_and_else_by_the_table(name: str, mib: int | None) -> None:
    assert memory_mib(name) == mib


@pytest.mark.parametrize(
    ("name", "measured_mib", "size"),
    [
        ("NVIDIA A100-SXM4-80GB", 81251, 80),
        ("A100", 40536, 40),
        ("Tesla T4", 15360, 16),
        ("NVIDIA A10", 23028, 24),
        ("V100", 16160, 16),
        ("NVIDIA H100 NVL", 95830, 94),
        ("X9", 12500, 12),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728, 9),
        ("X9", 0, 0),
    ],
)
def test_a_device_has_the_size_under_which_it_is_sold(name: str, measured_mib: int, size: int) -> None:
    assert nominal_gb(name, memory_mib=measured_mib) == size
    assert model_of(name, memory_mib=measured_mib) == Model(normalise(name).family, size)


@pytest.mark.parametrize(
    ("name", "measured_mib", "size"),
    [
        ("X9", 14336, 16),
        ("nvidia x9", 14336, 16),
        ("X9", 40960, 40),
        ("Y7", 11500, 12),
        ("V100", 23500, 24),
        ("V100", 16160, 16),
    ],
)
def test_configured_sizes_are_added_to_those_of_the_table(name: str, measured_mib: int, size: int) -> None:
    specs = by_family({"NVIDIA X9": 16, "Y7": 12.5, "V100": 24})
    assert nominal_gb(name, memory_mib=measured_mib, specs=specs) == size


@pytest.mark.parametrize(
    ("name", "mib"), [("X9", 12800), ("V100", 24576), ("V100M16", 16384), ("T4", 16384), ("Z", None)]
)
def test_the_usual_memory_is_the_configured_one(name: str, mib: int | None) -> None:
    assert memory_mib(name, specs=by_family({"X9": 12.5, "Tesla V100": 24})) == mib


def test_each_family_of_the_table_is_its_own_name_and_has_a_vendor_and_memory() -> None:
    for family in known_families():
        assert normalise(family).family == family
        assert vendor_of(family) is not None
        assert memory_mib(family)


def test_an_unknown_model_has_no_vendor() -> None:
    assert vendor_of("X9") is None


@given(st.text(max_size=30))
def test_no_name_crashes_the_normaliser(name: str) -> None:
    assert normalise(name).admits(normalise(name))


@pytest.mark.parametrize("name", [f"V100-{'9' * 5000}GB", f"V{'1' * 5000}M{'3' * 5000}", "V100-٣GB"])
def test_no_name_crashes_the_reader(name: str) -> None:
    assert normalise(name).memory_gb is None
