"""Which quota is above which: missing parents, circles, and quotas that count each user apart."""

from random import Random
from typing import Any

import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.quota_tree.parents import acts_as_parent_alone, ancestors_of, circle_of, parent_of
from tests.core.queue.quota_tree.builders import make_quota

NAMES = "abcde"


def drawn(random: Random) -> dict[str, GPUQuota]:
    found = {}
    for name in NAMES:
        spec: dict[str, Any] = {"per": random.choice(["Together", "Together", "Together", "User"])}
        spec |= {"parent": random.choice([*NAMES, "gone"])} if random.random() < 0.7 else {}
        spec |= random.choice([{"parents_only": True}, {"namespaces": [name]}, {"users": ["ada"]}])
        found[name] = make_quota(name, **spec)
    return found


def way_up(name: str, *, quotas: dict[str, GPUQuota]) -> list[str]:
    """The quotas from one up, each once, by what they say of their parents."""
    found, above = [name], quotas[name].spec.parent
    while above in quotas and above not in found:
        found.append(above)
        above = quotas[above].spec.parent
    return found


@pytest.mark.parametrize("seed", range(10))
def test_a_parent_counts_that_is_there_counts_all_together_and_is_in_no_circle_with_its_child(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        quotas = drawn(random)
        parents: dict[str, str | None] = {}
        for name, quota in quotas.items():
            way = way_up(name, quotas=quotas)
            is_circle = quotas[way[-1]].spec.parent == name
            assert circle_of(name, quotas=quotas) == ([*way, name] if is_circle else [])
            above = quota.spec.parent
            counts = above in quotas and quotas[above].spec.per == "Together" and not is_circle
            parents[name] = above if counts else None
            assert parent_of(name, quotas=quotas) == parents[name]
        named = {quota.spec.parent for quota in quotas.values()}
        for name, quota in quotas.items():
            above, expected = parents[name], list[str]()
            while above is not None:
                expected.append(above)
                above = parents[above]
            assert list(ancestors_of(name, quotas=quotas)) == expected
            names_no_one = not (quota.spec.namespaces or quota.spec.users or quota.spec.projects)
            is_alone = name in named and names_no_one and quota.spec.per == "Together"
            assert acts_as_parent_alone(quota, parents=named) == is_alone
