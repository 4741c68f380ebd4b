"""GPU seconds of ended jobs by namespace and user, as a plain sum over the records has them."""

from collections import Counter
from random import Random

import pytest

from dovetail.api.historyquery import OTHERS
from dovetail_operator.history.recorder import UsedCollector
from tests.operator_.history.test_store import record


@pytest.mark.parametrize("most", [2, 4, 500])
def test_the_largest_sums_are_by_namespace_and_user_and_the_rest_is_one(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("dovetail_operator.history.recorder.MOST_SERIES", most)
    random, used = Random(most), UsedCollector()
    sums = Counter({("team", "ada"): 5.0, ("lab", "ada"): 7.0})
    used.start(dict(sums))
    for number in range(40):
        namespace, user, seconds = random.choice(["team", "lab"]), random.choice("ab"), random.randint(1, 99)
        used.add(record(number, namespace=namespace, user=user, project="p", gpuSeconds=seconds))
        sums[namespace, user] += seconds
    (family,) = used.collect()
    found = {(sample.labels["namespace"], sample.labels["user"]): sample.value for sample in family.samples}
    largest = sorted(sums.values(), reverse=True)
    rest = sum(largest[most:])
    assert found.pop((OTHERS, OTHERS), 0.0) == rest
    assert sorted(found.values(), reverse=True) == largest[:most]
    assert all(sums[key] == value for key, value in found.items())
