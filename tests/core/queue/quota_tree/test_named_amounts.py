"""Guarantees of models and memory: which quotas name them at which level, in which spelling, and what there is."""

from collections.abc import Mapping
from dataclasses import dataclass

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from dovetail.api.gpuquota import GPUAmounts, GPUQuota
from dovetail.queue.quota_tree.loans import Charge, Loans
from dovetail.queue.quota_tree.resources import GPUS, MEMORY
from dovetail.queue.quota_tree.tree import Capacity, Tree, amounts_of
from dovetail.queue.quota_tree.tree_builder import tree_of
from tests.core.queue.quota_tree.builders import make_quota

GIB = 1024
A80 = "A100-80GB"


def tree(*quotas: GPUQuota, there: Mapping[str, int]) -> Tree:
    """The tree in a cluster with so many GPUs by model, and GiB of memory."""
    amounts = {each: amount * (GIB if each == MEMORY else 1000) for each, amount in there.items()}
    return tree_of(quotas, capacity=Capacity(known=amounts, usable=amounts))


def bounds(found: Tree, *, of: str) -> dict[str, int | None]:
    """What decides on the jobs of each quota, in GPUs or GiB."""
    at, unit = found.resources.index(of), GIB if of == MEMORY else 1000
    return {node.name: None if (amount := node.bounds[at]) is None else amount // unit for node in found.nodes}


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    quotas: tuple[GPUQuota, ...]
    there: dict[str, int]
    of: str
    bounds: dict[str, int | None]
    findings: tuple[str, ...] = ()


CASES = (
    Case(
        says="models that departments do not name count together in the cluster",
        quotas=(
            make_quota("dep", guaranteed=8, parents_only=True),
            make_quota("dep2", guaranteed=4, parents_only=True),
            make_quota("a", parent="dep", models={"A100": 4}),
            make_quota("b", parent="dep2", models={"A100": 4}),
        ),
        there={GPUS: 12, "A100": 4},
        of="A100",
        bounds={"dep": None, "dep2": None, "a": 2, "b": 2},
        findings=(
            (
                "GPUQuota a: its guarantee of 4 GPUs of model A100 is scaled: 8 GPUs are guaranteed in the "
                "cluster, the cluster has 4 GPUs"
            ),
            (
                "GPUQuota b: its guarantee of 4 GPUs of model A100 is scaled: 8 GPUs are guaranteed in the "
                "cluster, the cluster has 4 GPUs"
            ),
        ),
    ),
    Case(
        says="memory below a department that names GPUs is at most that of the cluster",
        quotas=(make_quota("dep", guaranteed=8, parents_only=True), make_quota("a", parent="dep", memory="100Ti")),
        there={GPUS: 8, MEMORY: 256},
        of=MEMORY,
        bounds={"dep": None, "a": 256},
        findings=(
            (
                "GPUQuota a: its guarantee of 102400 GiB of device memory is scaled: 102400 GiB are guaranteed in the "
                "cluster, the cluster has 256 GiB"
            ),
        ),
    ),
    Case(
        says="a limit of what a department does not guarantee bounds what its projects do",
        quotas=(
            make_quota("dep", guaranteed=8, parents_only=True, limit={"memory": "64Gi"}),
            make_quota("a", parent="dep", memory="128Gi"),
        ),
        there={GPUS: 8, MEMORY: 256},
        of=MEMORY,
        bounds={"dep": None, "a": 64},
        findings=(
            (
                "GPUQuota dep: has a limit of 64 GiB, its children guarantee 128 GiB of device memory together (a 128 "
                "GiB): each of them gets its part until you raise the limit or lower them"
            ),
        ),
    ),
    Case(
        says="one model in two spellings is one amount, the lower",
        quotas=(make_quota("a", models={"A100": 4, "a100": 3}),),
        there={GPUS: 8, "A100": 8},
        of="A100",
        bounds={"a": 3},
    ),
    Case(
        says="a project that guarantees nothing adds no amount to those of its department",
        quotas=(
            make_quota("dep", parents_only=True),
            make_quota("a", parent="dep", memory="64Gi"),
            make_quota("b", parent="dep"),
        ),
        there={GPUS: 8, MEMORY: 640},
        of=GPUS,
        bounds={"dep": None, "a": None, "b": 0},
    ),
    Case(
        says="a model and one of its sizes are not added up",
        quotas=(make_quota("a", models={"A100": 4, A80: 4}), make_quota("b", guaranteed=4)),
        there={GPUS: 8, "A100": 4, A80: 4},
        of=A80,
        bounds={"a": 4, "b": None},
    ),
    Case(
        says="a model and its size in different quotas count together in the cluster",
        quotas=(make_quota("a", models={"A100": 4}), make_quota("b", models={"a100 80GB": 4})),
        there={GPUS: 12, "A100": 4, A80: 4},
        of=A80,
        bounds={"a": None, "b": 2},
        findings=(
            (
                "GPUQuota a: its guarantee of 4 GPUs of model A100 is scaled: 8 GPUs are guaranteed in the "
                "cluster, the cluster has 4 GPUs"
            ),
            (
                "GPUQuota b: its guarantee of 4 GPUs of model A100-80GB is scaled: 8 GPUs are guaranteed in the "
                "cluster, the cluster has 4 GPUs"
            ),
        ),
    ),
    Case(
        says="a limit of a model in another spelling bounds the guarantee",
        quotas=(make_quota("a", models={"A100": 4}, limit={"models": {"Tesla a100": 1}}),),
        there={GPUS: 8, "A100": 8},
        of="A100",
        bounds={"a": 1},
        findings=(
            (
                "GPUQuota a: guarantees 4 GPUs of model A100, above its limit of 1: 1 are guaranteed until you raise "
                "the limit or lower the guarantee"
            ),
        ),
    ),
    Case(
        says="where GPUs are scaled, models that imply them are too",
        quotas=(make_quota("a", models={"A100": 4}), make_quota("b", guaranteed=4)),
        there={GPUS: 4, "A100": 4},
        of="A100",
        bounds={"a": 2, "b": None},
        findings=(
            (
                "GPUQuota a: its guarantee of 4 GPUs is scaled: 8 GPUs are guaranteed in the cluster, the cluster "
                "has 4 GPUs"
            ),
            (
                "GPUQuota b: its guarantee of 4 GPUs is scaled: 8 GPUs are guaranteed in the cluster, the cluster "
                "has 4 GPUs"
            ),
        ),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_named_amounts(case: Case) -> None:
    found = tree(*case.quotas, there=case.there)
    assert bounds(found, of=case.of) == case.bounds
    assert tuple(finding.message for finding in found.findings) == case.findings


# --- any tree ---------------------------------------------------------------------------------------------------

AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "gpus": st.integers(0, 8),
        "models": st.dictionaries(st.sampled_from(["A100", "a100", A80, "H100", "H100 80GB"]), st.integers(0, 4)),
        "memory": st.sampled_from(["0", "80Gi", "640Gi"]),
    },
)


@st.composite
def quotas(draw: st.DrawFn) -> list[GPUQuota]:
    """Two departments with two projects each, and one project without a department."""
    found = []
    for name, parent in (("d", None), ("e", None), ("d1", "d"), ("d2", "d"), ("e1", "e"), ("e2", "e"), ("f", None)):
        spec = {"limit": draw(AMOUNTS)} if draw(st.booleans()) else {}
        if draw(st.booleans()) or parent is None:
            spec["guaranteed_"] = draw(AMOUNTS)
        said = spec.pop("guaranteed_", {})
        found.append(
            make_quota(
                name,
                guaranteed=said.get("gpus"),
                models=said.get("models"),
                memory=said.get("memory"),
                parents_only=name in {"d", "e"},
                **spec,
                **({} if parent is None else {"parent": parent}),
            )
        )
    return found


@given(quotas(), st.tuples(*[st.integers(0, 6)] * 4))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_what_is_guaranteed_is_there(known: list[GPUQuota], there: tuple[int, ...]) -> None:
    a80, a40, h80, _ = there
    has = {GPUS: sum(there), "A100": a80 + a40, A80: a80, "H100": h80, "H100-80GB": h80, MEMORY: 80 * (sum(there))}
    found = tree(*known, there=has)
    for resource, at in {each: at for at, each in enumerate(found.resources)}.items():
        unit = GIB if resource == MEMORY else 1000
        tops = [index for index, node in enumerate(found.nodes) if node.parent is None]
        assert guaranteed(found, tops, at=at) <= has[resource] * unit
        for node in found.nodes:
            if node.bounds[at] is not None:
                assert guaranteed(found, list(node.children), at=at) <= (node.bounds[at] or 0)


def guaranteed(found: Tree, among: list[int], *, at: int) -> int:
    """What the highest quotas that name a resource, or models of it, guarantee of it together."""
    total = 0
    for index in among:
        node = found.nodes[index]
        of = [at] if node.bounds[at] is not None else [i for i, above in enumerate(found.includes) if above == at]
        named = [node.bounds[each] or 0 for each in of if node.bounds[each] is not None]
        total += sum(named) if named else guaranteed(found, list(node.children), at=at)
    return total


JOBS = st.tuples(
    st.sampled_from(["d1", "d2", "e1", "e2", "f"]),
    st.integers(1, 4),
    st.sampled_from(["", "A100", "a100-80GB", "H100", "V100"]),
    st.sampled_from([0, 20, 80]),
)


@given(quotas(), st.lists(JOBS, min_size=2, max_size=6))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_what_a_guarantee_covers_never_ends_for_another_department(
    known: list[GPUQuota], jobs: list[tuple[str, int, str, int]]
) -> None:
    """Otherwise two jobs could end for each other for ever."""
    found = tree_of(known)
    charges = {
        f"{number}": Charge(
            quota=found.by_name.get(quota), need=found.need(gpus * 1000, memory_mib=gpus * gib * GIB, model=model)
        )
        for number, (quota, gpus, model, gib) in enumerate(jobs)
    }
    loans = Loans(found, charges=charges)
    for key in charges:
        owner = loans.owner(key)
        loans.start(key)
        for other, asks in charges.items():
            if owner is None or asks.quota is None:
                continue
            if found.common(asks.quota, other=owner) is None:
                assert not loans.gives_back(key, to=other, owner=found.nodes[asks.quota].path[-1])


def test_of_two_spellings_of_a_model_the_lower_amount_counts_in_whichever_order() -> None:
    said = {"a100": 4, "A100": 2, "V100": 3}
    for models in (said, dict(reversed(said.items()))):
        amounts = msgspec.convert({"models": models, "gpus": 9, "memory": "2Gi"}, GPUAmounts)
        assert amounts_of(amounts, resources=[GPUS, MEMORY, "A100", "V100", "T4"]) == [9000, 2048, 2000, 3000, None]
