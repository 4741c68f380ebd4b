import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.gpu.models import Model, known_families, memory_mib, normalise, vendor_of


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
