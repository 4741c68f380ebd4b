"""The priority that quotas leave a subject, and whether it may take the place of others."""

import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.limits.priorities import Bound, bound_of, may_preempt, within
from dovetail.queue.limits.subjects import Subject
from tests.core.queue.limits.test_limits import make_quota

ADA, BOB = Subject(namespace="vision", user="ada"), Subject(namespace="vision", user="bob")
POD, ELSEWHERE = Subject(namespace="vision"), Subject(namespace="nlp", user="ada")
TEAM = make_quota("team", namespaces=["vision"], maxPriority=50)
STRICT = make_quota("strict", users=["ada"], maxPriority=20)
LOOSE = make_quota("loose", limit={"gpus": 4})


@pytest.mark.parametrize(
    ("quotas", "subject", "bound"),
    [
        ((), ADA, None),
        ((LOOSE,), ADA, None),
        ((TEAM, LOOSE), BOB, Bound(most=50, quota="team")),
        ((TEAM, STRICT), ADA, Bound(most=20, quota="strict")),
        ((TEAM, STRICT), ELSEWHERE, Bound(most=20, quota="strict")),
        ((TEAM, STRICT), POD, Bound(most=50, quota="team")),
        ((STRICT,), POD, None),
        ((make_quota("none", maxPriority=0),), POD, Bound(most=0, quota="none")),
    ],
)
def test_the_strictest_quota_that_binds_counts(
    quotas: tuple[GPUQuota, ...], subject: Subject, bound: Bound | None
) -> None:
    assert bound_of(quotas, subject=subject) == bound


@pytest.mark.parametrize(("priority", "counts"), [(0, 0), (50, 50), (51, 50), (255, 50)])
def test_a_priority_beyond_the_bound_is_refused_in_a_sentence_and_counts_as_the_bound(
    priority: int, counts: int
) -> None:
    bound = Bound(most=50, quota="team")
    assert within(priority, bound=bound) == counts
    refused = bound.refusal(priority, field="spec.priority")
    assert (refused is None) == (priority <= 50)
    if refused is not None:
        assert (refused.reason, refused.message) == (
            "Quota",
            f"spec.priority is {priority}: GPUQuota team allows 0 to 50",
        )


def test_without_a_bound_every_priority_counts() -> None:
    assert within(255, bound=None) == 255


def test_one_quota_is_enough_to_forbid_preemption_to_those_whom_it_binds() -> None:
    quotas = (TEAM, make_quota("course", users=["ada"], preemptionPolicy="Never"))
    assert [may_preempt(quotas, subject=each) for each in (ADA, BOB, POD, ELSEWHERE)] == [False, True, True, False]


def test_of_several_bounds_the_lowest_counts_whatever_the_quotas_are_called() -> None:
    quotas = [make_quota("a", maxPriority=30), make_quota("b", maxPriority=10), make_quota("c", maxPriority=10)]
    for several in (quotas, quotas[::-1]):
        bound = bound_of(several, subject=Subject(namespace="team", user="ada"))
        assert bound is not None
        assert (bound.most, bound.quota) == (10, "b")
    assert bound_of([make_quota("d")], subject=Subject(namespace="team", user="ada")) is None
