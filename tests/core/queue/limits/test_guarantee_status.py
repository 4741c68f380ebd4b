"""What a quota's status says of its guarantee: lent, borrowed, waiting, and its conditions."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.formats.timestamps import timestamp
from dovetail.queue.limits.guarantee_status import conditions_of, guarantee_of, lent, waiting
from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from tests.core.queue.quota_tree.builders import make_loans, make_quota, make_tree

NOW = datetime(2026, 1, 8, 12, tzinfo=UTC)


def test_what_a_borrower_uses_is_lent_by_those_with_idle_guarantees() -> None:
    loans = make_loans(
        make_quota("a", guaranteed=4), make_quota("b", guaranteed=4), gpus=8, running={"x": ("b", 6)}, waiting={}
    )
    nothing = [[0], [0]]
    found = {name: guarantee_of(name, loans=loans, lent=lent(loans), waiting=nothing) for name in ("a", "b")}
    a, b = found["a"], found["b"]
    assert a is not None
    assert b is not None
    assert (a.gpus, a.used, a.lent, a.borrowed) == (4, 0, 2, 0)
    assert (b.gpus, b.used, b.lent, b.borrowed) == (4, 6, 0, 2)


def test_free_gpus_that_no_one_is_guaranteed_are_used_before_a_loan() -> None:
    loans = make_loans(make_quota("a", guaranteed=4), gpus=8, running={"x": ("guest", 5)}, waiting={})
    assert lent(loans) == [(1000,)]


def test_a_relative_borrows_within_the_department_first() -> None:
    quotas = (
        make_quota("research", parents_only=True, guaranteed=4),
        make_quota("vision", parent="research", guaranteed=2),
        make_quota("speech", parent="research", guaranteed=2),
        make_quota("search", guaranteed=4),
    )
    loans = make_loans(*quotas, gpus=8, running={"x": ("vision", 4)}, waiting={})
    found = dict(zip((node.name for node in loans.tree.nodes), lent(loans), strict=True))
    assert found == {"research": (0,), "search": (0,), "speech": (2000,), "vision": (0,)}


def test_conditions_name_contradictions_and_scaling() -> None:
    quota = make_quota("a", guaranteed=8, parent="gone")
    valid, scaled = conditions_of(quota, tree=make_tree(quota, gpus=8, usable=6), now=NOW)
    assert (valid.type, valid.status, valid.reason) == ("Valid", "False", "ParentMissing")
    assert (scaled.type, scaled.status, scaled.reason) == ("Scaled", "True", "DevicesLost")


@pytest.mark.parametrize(
    ("quotas", "usable", "reason", "message"),
    [
        pytest.param(
            (make_quota("a", memory="640Gi", limit={"memory": "320Gi"}),),
            8,
            "GuaranteeAboveLimit",
            "GPUQuota a: 320 of its 640 guaranteed GiB of device memory hold: its limit is lower",
            id="its limit is lower",
        ),
        pytest.param(
            (make_quota("a", models={"V100": 4}, limit={"models": {"V100": 1}}),),
            8,
            "GuaranteeAboveLimit",
            "GPUQuota a: 1 of its 4 guaranteed GPUs of model V100 hold: its limit is lower",
            id="its limit of a model is lower",
        ),
        pytest.param(
            (
                make_quota("top", guaranteed=8, parents_only=True),
                make_quota("a", guaranteed=8, parents_only=True, parent="top"),
                make_quota("below", guaranteed=9, parent="a"),
            ),
            4,
            "ChildrenAboveParent",
            "GPUQuota a: 4 of its 8 guaranteed GPUs hold: the quota above it guarantees less",
            id="the quota above it has less",
        ),
    ],
)
def test_a_contradictory_quota_is_scaled_too_while_it_has_less_than_it_says(
    quotas: tuple[GPUQuota, ...], usable: int, reason: str, message: str
) -> None:
    tree = make_tree(*quotas, gpus=8, usable=usable, models=["V100"])
    quota = next(quota for quota in quotas if quota.metadata.name == "a")
    valid, scaled = conditions_of(quota, tree=tree, now=NOW)
    assert (valid.status, scaled.status, scaled.reason, scaled.message) == ("False", "True", reason, message)


def test_a_quota_that_agrees_with_its_tree_is_valid() -> None:
    quota = make_quota("a", guaranteed=8)
    valid, scaled = conditions_of(quota, tree=make_tree(quota, gpus=8), now=NOW)
    assert (valid.status, valid.reason, scaled.status) == ("True", "AsSpecified", "False")


def test_a_job_that_names_no_guaranteed_model_does_not_wait_within_a_guarantee_of_models() -> None:
    jobs = {"named": ("a", 2), "other": ("a", 1)}
    models = {"named": "A100", "other": "H100"}
    loans = make_loans(make_quota("a", models={"A100": 4}), gpus=8, running={}, waiting=jobs, models=models)
    counted = [
        Counted(uid=uid, subject=Subject(namespace="a"), milli=gpus * 1000, queued=True)
        for uid, (_, gpus) in jobs.items()
    ]
    assert waiting(loans, counted=counted) == [[2000, 2000]]


def test_an_elastic_job_waits_within_a_guarantee_with_its_fewest_workers() -> None:
    quotas = (make_quota("a", guaranteed=4),)
    elastic = Counted(uid="x", subject=Subject(namespace="a"), milli=8000, queued=True, workers=8, least=4)
    loans = loans_of(
        make_tree(*quotas, gpus=8),
        counted=[elastic],
        pods=(),
        quota_of=lambda subject: quota_of(quotas, subject=subject),
        recent={},
    )
    assert waiting(loans, counted=[elastic]) == [[4000]]


def test_a_condition_has_the_time_at_which_it_last_changed() -> None:
    quota = make_quota("a", guaranteed=8, parent="gone")
    tree = make_tree(quota, gpus=8, usable=6)
    first = conditions_of(quota, tree=tree, now=NOW)
    said = msgspec.structs.replace(quota, status=msgspec.structs.replace(quota.status, conditions=first))
    later = NOW + timedelta(hours=1)
    assert conditions_of(said, tree=tree, now=later) == first
    valid, scaled = conditions_of(said, tree=make_tree(said, gpus=8, usable=8), now=later)
    assert (scaled.status, scaled.last_transition_time) == ("False", timestamp(later))
    assert (valid.status, valid.last_transition_time) == ("False", timestamp(NOW))
