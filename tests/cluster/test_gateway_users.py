"""A hostile account with many tokens next to ordinary users: the load test of benchmarks/gateway_users.py, short."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from dovetail_sandbox.cluster import Cluster

pytestmark = pytest.mark.cluster

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gateway_users.py"


async def test_an_account_with_many_tokens_keeps_no_user_from_an_answer_and_costs_few_reviews(
    sandbox: Cluster,
) -> None:
    bench: dict[str, Any] = runpy.run_path(str(SCRIPT))
    sizes = bench["Sizes"](namespaces=40, users=6, tokens=20, seconds=6.0, rounds=1)
    result = await bench["measure"](sandbox, sizes=sizes)
    print(result.table())
    assert set(result.statuses) == {200}, "every user got every answer"
    assert set(result.hostile) <= {200, 429}
    assert result.hostile[429] > 0, "it asked for more than a user gets"
    assert 0 < result.reviews <= result.most_reviews
