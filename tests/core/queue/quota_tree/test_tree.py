"""The tree of quotas: guarantees, contradictions with their numbers, and what they leave working."""

from dataclasses import dataclass

import pytest

from dovetail.api.gpuquota import GPUQuota
from tests.core.queue.quota_tree.builders import make_quota, make_tree


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    quotas: tuple[GPUQuota, ...]
    gpus: int | None = None
    usable: int | None = None
    guaranteed: dict[str, int]
    findings: tuple[str, ...] = ()


DEPARTMENT = make_quota("research", guaranteed=8, parents_only=True)
CASES = (
    Case(
        says="a department without an amount guarantees the sum of its projects",
        quotas=(
            make_quota("research", parents_only=True),
            make_quota("vision", parent="research", guaranteed=4),
            make_quota("speech", parent="research", guaranteed=2),
        ),
        guaranteed={"research": 6, "vision": 4, "speech": 2},
    ),
    Case(
        says="a missing parent is named, and the quota acts without it",
        quotas=(make_quota("vision", parent="research", guaranteed=4),),
        guaranteed={"vision": 4},
        findings=("GPUQuota vision: its parent research does not exist: it acts without one",),
    ),
    Case(
        says="a circle is named with its path, and both quotas act without parents",
        quotas=(
            make_quota("a", parent="b", guaranteed=4),
            make_quota("b", parent="a", guaranteed=2),
            make_quota("c", parent="b", guaranteed=1),
        ),
        guaranteed={"a": 4, "b": 2, "c": 1},
        findings=(
            "GPUQuota a: its parents form a circle (a > b > a): it acts without a parent",
            "GPUQuota b: its parents form a circle (b > a > b): it acts without a parent",
        ),
    ),
    Case(
        says="a parent that counts each user by itself is none",
        quotas=(make_quota("each", per="User", users=[]), make_quota("vision", parent="each", guaranteed=1)),
        guaranteed={"vision": 1},
        findings=("GPUQuota vision: its parent each counts each user by itself (per): it acts without a parent",),
    ),
    Case(
        says="children above their parent share what it guarantees",
        quotas=(
            DEPARTMENT,
            make_quota("vision", parent="research", guaranteed=9),
            make_quota("speech", parent="research", guaranteed=3),
        ),
        guaranteed={"research": 8, "vision": 6, "speech": 2},
        findings=(
            (
                "GPUQuota research: guarantees 8 GPUs, its children guarantee 12 GPUs together (speech 3 GPUs, "
                "vision 9 GPUs): each of them gets its part until you raise it or lower them"
            ),
        ),
    ),
    Case(
        says="children above the limit of a parent that guarantees nothing itself share that limit",
        quotas=(
            make_quota("research", parents_only=True, limit={"gpus": 3}),
            make_quota("vision", parent="research", guaranteed=1),
            make_quota("speech", parent="research", guaranteed=3),
        ),
        guaranteed={"research": 3, "vision": 1, "speech": 2},
        findings=(
            (
                "GPUQuota research: has a limit of 3, its children guarantee 4 GPUs together (speech 3 GPUs, vision "
                "1 GPU): each of them gets its part until you raise the limit or lower them"
            ),
        ),
    ),
    Case(
        says="a guarantee above the limit is the limit",
        quotas=(make_quota("vision", guaranteed=6, limit={"gpus": 4}),),
        guaranteed={"vision": 4},
        findings=(
            (
                "GPUQuota vision: guarantees 6 GPUs, above its limit of 4: 4 are guaranteed until you raise the limit "
                "or lower the guarantee"
            ),
        ),
    ),
    Case(
        says="guarantees above the cluster are scaled, and the cluster's size is named",
        quotas=(make_quota("a", guaranteed=6), make_quota("b", guaranteed=2)),
        gpus=4,
        guaranteed={"a": 3, "b": 1},
        findings=(
            (
                "GPUQuota a: its guarantee of 6 GPUs is scaled: 8 GPUs are guaranteed in the cluster, "
                "the cluster has 4 GPUs"
            ),
            (
                "GPUQuota b: its guarantee of 2 GPUs is scaled: 8 GPUs are guaranteed in the cluster, "
                "the cluster has 4 GPUs"
            ),
        ),
    ),
    Case(
        says="where devices are lost, the reason is that",
        quotas=(make_quota("a", guaranteed=8),),
        gpus=8,
        usable=6,
        guaranteed={"a": 6},
        findings=(
            (
                "GPUQuota a: its guarantee of 8 GPUs is scaled: 8 GPUs are guaranteed in the cluster, "
                "only 6 GPUs of 8 GPUs are usable"
            ),
        ),
    ),
    Case(
        says="a quota without guarantee, parent or child is in no tree",
        quotas=(make_quota("plain", limit={"gpus": 3}),),
        guaranteed={},
    ),
    Case(
        says="a guarantee by model alone is one of GPUs too",
        quotas=(make_quota("vision", models={"A100": 4}),),
        guaranteed={"vision": 4},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_tree(case: Case) -> None:
    tree = make_tree(*case.quotas, gpus=case.gpus, usable=case.usable)
    assert {node.name: node.guaranteed_milli // 1000 for node in tree.nodes} == case.guaranteed
    assert tuple(finding.message for finding in tree.findings) == case.findings


def test_the_path_of_a_quota_leads_to_the_top() -> None:
    tree = make_tree(
        DEPARTMENT, make_quota("vision", parent="research"), make_quota("ada", parent="vision", users=["ada"])
    )
    names = [tree.nodes[at].name for at in tree.nodes[tree.by_name["ada"]].path]
    assert names == ["ada", "vision", "research"]
