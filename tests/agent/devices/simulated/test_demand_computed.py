"""How much of its share each pod of a service computes, computed again in fractions from the pods of its namespace."""

from fractions import Fraction
from random import Random

import pytest
from msgspec.structs import replace as with_fields

from dovetail_agent.devices.simulated.demand import levels_of
from tests.agent.builders import allocated, make_tenant


@pytest.mark.parametrize("seed", range(5))
def test_the_work_of_a_namespace_is_shared_by_its_pods_alone(seed: int) -> None:
    random = Random(seed)
    for _ in range(30):
        tenants = []
        for number in range(random.randint(0, 5)):
            held = [allocated(index, share_milli=random.choice([250, 1000])) for index in range(random.randint(0, 2))]
            made = make_tenant(*held, uid=f"uid-{number}")
            tenants.append(with_fields(made, namespace=random.choice(["web", "chat", "other"])))
        demand = {"web": random.choice([0.0, 0.5, 1.5, 9.0]), "chat": random.choice([0.25, 3.0])}
        expected = {}
        for tenant in tenants:
            same = [each for each in tenants if each.namespace == tenant.namespace]
            devices = sum(Fraction(held.share_milli, 1000) for each in same for held in each.devices)
            if tenant.namespace in demand and devices:
                expected[tenant.uid] = float(min(Fraction(1), Fraction(demand[tenant.namespace]) / devices))
        assert levels_of(tenants, demand=demand) == pytest.approx(expected)
