"""What jobs and pods take of quotas: statuses, spells, and what is kept of it from object to object."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import GPUJob, job_of
from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.gpu.request import RequestError
from dovetail.queue.limits.fair_share import account_of
from dovetail.queue.limits.priorities import bound_of
from dovetail.queue.limits.quota_usage import Counted, spell_of, status_of
from dovetail.queue.limits.quotas import Quotas, spec_in_pools, weight_refusal
from dovetail.queue.limits.subjects import Subject, binds
from dovetail.queue.model.gate import Refused
from tests.core.engine.builders import make_ask, make_ledger
from tests.core.queue.backfill.test_backfill import make_job

NOW = datetime(2026, 1, 8, 12, tzinfo=UTC)
ADA = Subject(namespace="vision", user="ada")
BOB = Subject(namespace="vision", user="bob")
POD = Subject(namespace="vision")


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def make_quota(name: str = "q", *, status: dict[str, Any] | None = None, **spec: Any) -> GPUQuota:
    metadata = {"name": name, "generation": 3}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, GPUQuota)


def job(uid: str = "a", subject: Subject = ADA, *, gpus: float = 2, **more: Any) -> Counted:
    return Counted(uid=uid, subject=subject, milli=int(gpus * 1000), **more)


def status(quota: GPUQuota, *counted: Counted, **used: float) -> Any:
    bound = [each for each in counted if binds(quota.spec, subject=each.subject)]
    return status_of(
        quota,
        everyone=bound,
        used={(quota.metadata.name, who): each for who, each in used.items()},
        now=NOW,
        has_shares=quota.spec.shares is not None,
    )


# --- the status of one quota ---


def test_running_jobs_queued_jobs_and_pods_are_counted_apart() -> None:
    found = status(make_quota(), job("a"), job("b", queued=True), job("c", POD, gpus=0.5), job("d", BOB, gpus=1))
    assert (found.gpus, found.running_jobs, found.queued_jobs, found.observed_generation) == (3.5, 2, 1, 3)


def test_what_has_ended_or_is_not_bound_takes_nothing() -> None:
    other = Subject(namespace="nlp", user="ada")
    found = status(make_quota(namespaces=["vision"]), job("a", end=ago(1)), job("b", other), job("c"))
    assert (found.gpus, found.running_jobs) == (2, 1)


def test_each_user_has_a_line_with_what_the_user_takes_and_used() -> None:
    found = status(make_quota(per="User"), job("a"), job("b", gpus=1), job("c", BOB, queued=True), carl=7.12345)
    assert [(use.who, use.gpus, use.running_jobs, use.queued_jobs, use.gpu_seconds) for use in found.uses] == [
        ("ada", 3, 2, 0, 0),
        ("carl", 0, 0, 0, 7.123),
        ("bob", 0, 0, 1, 0),
    ]


def test_lines_are_in_the_order_of_gpus_then_use_then_queued_jobs_then_names() -> None:
    waits = [job(f"w{at}", replace(ADA, user="many"), queued=True) for at in range(2)]
    one = [job(uid, replace(ADA, user=uid), queued=True) for uid in ("b", "a")]
    found = status(make_quota(per="User"), *one, *waits, job("r", BOB), little=1.0, much=9.0)
    assert [use.who for use in found.uses] == ["bob", "much", "little", "many", "a", "b"]


def test_use_of_another_quota_is_not_listed() -> None:
    used = {("other", "ada"): 5.0, ("q", "bob"): 6.0}
    found = status_of(make_quota(per="User"), everyone=[], used=used, now=NOW, has_shares=False)
    assert [(use.who, use.gpu_seconds) for use in found.uses] == [("bob", 6.0)]


def test_at_most_1024_lines_are_listed() -> None:
    many = [job(str(at), replace(ADA, user=f"u{at}")) for at in range(1025)]
    assert len(status(make_quota(per="User"), *many).uses) == 1024


@pytest.mark.parametrize(("shares", "as_of"), [(None, None), (1, "2026-01-08T12:00:00Z")])
def test_only_a_quota_with_shares_says_up_to_when_it_counts(shares: int | None, as_of: str | None) -> None:
    assert status(make_quota(shares=shares)).as_of == as_of


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"start": None}, False),
        ({"queued": True}, False),
        ({"milli": 0}, False),
        ({"subject": Subject(namespace="nlp", user="ada")}, False),
        ({"end": ago(1)}, True),
    ],
)
def test_a_spell_is_of_a_job_that_started_with_gpus_for_a_quota_with_shares(changed: Any, counts: bool) -> None:
    held = replace(job(start=ago(2)), **changed)
    account = account_of([make_quota(namespaces=["vision"], shares=1)], subject=held.subject)
    found = spell_of(held, account=account)
    assert (found is not None) is counts
    assert found is None or (found.account, found.gpus, found.start, found.end) == (
        ("q", ""), 2.0, ago(2), changed.get("end"),
    )  # fmt: skip
    assert spell_of(job(start=ago(2)), account=account_of([make_quota()], subject=ADA)) is None


# --- all quotas ---


def test_a_quota_is_news_by_its_spec_and_not_by_its_status() -> None:
    quotas = Quotas()
    news = [
        quotas.update(make_quota(limit={"gpus": 1})),
        quotas.update(make_quota(limit={"gpus": 1}, status={"gpus": 1.0})),
        quotas.update(make_quota(limit={"gpus": 2})),
        quotas.update(make_quota("a", limit={"gpus": 2})),
    ]
    assert news == [True, False, True, True]
    assert [quota.metadata.name for quota in quotas.all] == ["a", "q"]
    assert quotas.version == 3
    quotas.drop("a")
    quotas.drop("a")
    assert [quota.metadata.name for quota in quotas.all] == ["q"]
    assert quotas.version == 5


def test_only_a_quota_with_reservations_changes_by_time_alone() -> None:
    quotas = Quotas()
    quotas.update(make_quota(limit={"gpus": 1}))
    assert not quotas.keep_for_a_time
    window = {"name": "exam", "startTime": text(NOW), "endTime": text(NOW + timedelta(hours=1)), "gpus": 1}
    quotas.update(make_quota("r", advanceReservations=[window]))
    assert quotas.keep_for_a_time


def pod(uid: str = "p", *, node: str = "n", start: datetime | None = None) -> Pod:
    metadata = {"uid": uid, "name": uid, "namespace": "vision"}
    value = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"startTime": start and text(start)}}
    return msgspec.convert(value, Pod)


def holding(uid: str = "p", *, milli: int = 500, unnamed: int = 0) -> Ledger:
    ledger = make_ledger(n=4)
    devices = (AllocatedDevice(index=0, uuid="g", share_milli=milli, memory_mib=1),) if milli else ()
    ledger.commit(Claim(key=uid, node="n", devices=devices, unnamed=unnamed, resource="r" if unnamed else ""))
    return ledger


def gpus(quotas: Quotas, *counted: Counted, **how: Any) -> float:
    return float(quotas.compute_statuses(counted, now=NOW, **how)["q"].gpus)


def limited(**spec: Any) -> Quotas:
    quotas = Quotas()
    quotas.update(make_quota(**spec))
    return quotas


@pytest.mark.parametrize(("milli", "unnamed", "taken"), [(500, 0, 0.5), (0, 2, 2.0), (1000, 1, 2.0)])
def test_a_pod_takes_what_it_holds_with_devices_that_have_no_name_yet(milli: int, unnamed: int, taken: float) -> None:
    quotas = limited()
    quotas.pod_changed(pod(), ledger=holding(milli=milli, unnamed=unnamed))
    assert gpus(quotas) == taken


def test_a_pod_takes_nothing_without_a_claim_a_node_or_once_it_is_gone() -> None:
    quotas = limited()
    for changed in (lambda: quotas.pod_changed(pod(), ledger=make_ledger(n=4)),
                    lambda: quotas.pod_changed(pod(node=""), ledger=holding()),
                    lambda: quotas.pod_gone("p")):  # fmt: skip
        quotas.pod_changed(pod(), ledger=holding())
        assert gpus(quotas) == 0.5
        changed()
        changed()
        assert gpus(quotas) == 0


def test_a_pod_of_a_known_batch_job_is_counted_with_its_job_and_a_forged_one_by_itself() -> None:
    quotas = limited(limit={"gpus": 8})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "child", "controller": True}
    owned = msgspec.convert(
        {
            "metadata": {
                "uid": "p", "name": "p", "namespace": "vision", "labels": {names.LABEL_JOB: "x"},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": "n"},
        },
        Pod,
    )  # fmt: skip
    quotas.pod_changed(owned, ledger=holding())
    assert gpus(quotas, children={("vision", "child")}) == 0
    assert gpus(quotas, children={("vision", "other")}) == 0.5


def test_use_is_recorded_from_the_start_of_a_pod() -> None:
    quotas = limited(shares=1)
    quotas.pod_changed(pod(start=NOW - timedelta(seconds=100)), ledger=holding(milli=1000))
    (use,) = quotas.compute_statuses([], now=NOW)["q"].uses
    assert use.gpu_seconds == pytest.approx(100, rel=1e-3)


@pytest.mark.parametrize(
    ("as_of", "end", "wants"),
    [(None, ago(1), True), (ago(1), ago(1), False), (ago(1), ago(2), False), (ago(2), ago(1), True)],
)
def test_the_use_of_an_ended_job_is_wanted_until_it_is_recorded(
    as_of: datetime | None, end: datetime, wants: bool
) -> None:
    quotas = limited(shares=1, status={"asOf": None if as_of is None else text(as_of)})
    assert quotas.wants_use_until(end, subject=ADA) is wants
    quotas.update(make_quota())
    assert not quotas.wants_use_until(end, subject=ADA), "no quota has shares"


def test_the_use_of_an_ended_job_waits_for_no_quota_that_does_not_count_it() -> None:
    quotas = limited(shares=1, namespaces=["vision"], status={"asOf": text(ago(1))})
    quotas.update(make_quota("idle", shares=1, namespaces=["nlp"]))
    assert not quotas.wants_use_until(ago(1), subject=ADA)
    assert quotas.wants_use_until(ago(1), subject=Subject(namespace="nlp", user="ada"))


def in_department(name: str, *, shares: int | None, status: dict[str, Any] | None = None) -> GPUQuota:
    return make_quota(name, namespaces=[name], parent="dep", shares=shares, status=status)


@pytest.mark.parametrize("shares", [None, 1])
def test_in_a_tree_a_quota_without_shares_has_one(shares: int | None) -> None:
    quotas, capacity = Quotas(), Quotas().capacity(make_ledger(n=8))
    for quota in (make_quota("dep"), in_department("a", shares=shares), in_department("b", shares=1)):
        quotas.update(quota)
    used = [job(name, Subject(namespace=name, user="ada"), start=ago(24), end=ago(1)) for name in "ab"]
    statuses = quotas.compute_statuses(used, now=NOW, capacity=capacity)
    assert quotas.level_of(gpujob("a")) == quotas.level_of(gpujob("b")) == 1.0
    gate = quotas.gate([], capacity=capacity)
    assert gate is not None
    assert gate.loans is not None
    level = {node.name: gate.loans.level(at) for at, node in enumerate(gate.loans.tree.nodes)}
    assert level["a"] == level["b"] > 0
    assert level["dep"] == pytest.approx(2 * level["a"])
    quotas.update(in_department("a", shares=shares, status=values_of(statuses["a"])))
    assert not quotas.wants_use_until(ago(1), subject=used[0].subject), "it is recorded"
    later = quotas.compute_statuses([], now=NOW, capacity=capacity)
    assert later["a"].uses[0].gpu_seconds == pytest.approx(statuses["a"].uses[0].gpu_seconds)


def test_a_deleted_job_counts_until_every_quota_has_recorded_it() -> None:
    quotas = limited(shares=1)
    quotas.departed(job(start=ago(2), end=ago(1)))
    first = quotas.compute_statuses([], now=NOW)["q"]
    assert first.uses[0].gpu_seconds > 7000
    quotas.update(make_quota(shares=1, status={"asOf": text(NOW)}))
    assert quotas.compute_statuses([], now=NOW)["q"].uses == []
    quotas.update(make_quota(shares=1))
    assert quotas.compute_statuses([], now=NOW)["q"].uses == [], "it was dropped"


def test_recorded_use_counts_only_with_the_time_up_to_which_it_does() -> None:
    uses = [{"who": "", "gpuSeconds": 100.0}]
    recorded = limited(shares=1, status={"asOf": text(NOW), "uses": uses})
    assert [use.gpu_seconds for use in recorded.compute_statuses([], now=NOW)["q"].uses] == [100.0]
    unknown = limited(shares=1, status={"uses": uses})
    assert unknown.compute_statuses([], now=NOW)["q"].uses == []


def test_levels_are_news_when_they_change_and_only_then() -> None:
    quotas = limited(shares=1, namespaces=["vision"])
    quotas.update(make_quota("r", shares=1, namespaces=["nlp"]))
    before = quotas.version
    quotas.compute_statuses([], now=NOW)
    assert quotas.version == before
    for _ in range(2):
        quotas.compute_statuses([job(start=ago(2))], now=NOW)
        assert quotas.version == before + 1
    assert quotas.level_of(gpujob("vision")) > 0
    assert quotas.level_of(gpujob("nlp")) == 0


def gpujob(namespace: str = "vision", *, user: str = "ada", pool: str | None = None, priority: int = 10) -> GPUJob:
    metadata = {"name": "x", "namespace": namespace, "uid": "x", "annotations": {names.USER: user}}
    template = {"spec": {"containers": [{"name": "main"}]}}
    return job_of({"metadata": metadata, "spec": {"gpu": 1, "pool": pool, "priority": priority, "template": template}})


def test_a_changed_quota_binds_at_once() -> None:
    quotas = limited(pools=["fast"], maxPriority=50)
    asks_slow = gpujob(pool="slow", priority=60)
    assert quotas.pools_of(gpujob()) == ("fast",)
    assert isinstance(quotas.pools_of(asks_slow), Refused)
    assert (quotas.rank_of(asks_slow).priority, quotas.level_of(gpujob())) == (50, 1.0)
    quotas.update(make_quota(pools=["slow"], shares=1))
    assert quotas.pools_of(gpujob()) == ("slow",)
    assert quotas.pools_of(asks_slow) == ("slow",)
    assert (quotas.rank_of(asks_slow).priority, quotas.level_of(gpujob())) == (60, 0.0)


def test_a_job_is_refused_for_its_priority_before_its_pool() -> None:
    quotas = limited(pools=["fast"], maxPriority=50)
    found = [quotas.refusal_of(gpujob(pool=pool, priority=priority))
             for pool, priority in ((None, 50), ("slow", 50), ("slow", 51))]  # fmt: skip
    assert found[0] is None
    assert [each is not None and ("pool" in each.message) for each in found[1:]] == [True, False]


def test_a_cycle_s_gate_counts_running_jobs_and_pods_that_belong_to_none() -> None:
    quotas = limited(limit={"gpus": 4})
    assert quotas.gate([]) is None
    quotas.pod_changed(pod(), ledger=holding(milli=1000))
    ended, waits = job("c", gpus=9, start=ago(2), end=ago(1)), job("uid-b", gpus=2, queued=True)
    for running, refused in ((1.0, False), (1.5, True)):
        gate = quotas.gate([job("a", gpus=running), waits, ended])
        assert gate is not None
        assert (gate.refusal(make_job("b")) is not None) is refused


@pytest.mark.parametrize(("annotation", "refused"), [(None, False), ("50", False), ("51", True)])
def test_a_pod_s_own_weight_may_not_exceed_what_its_quotas_allow(annotation: str | None, refused: bool) -> None:
    bound = bound_of([make_quota(maxPriority=50)], subject=POD)
    said = {} if annotation is None else {names.PRIORITY: annotation}
    assert (weight_refusal(said, ask=make_ask("0.5"), bound=bound) is not None) is refused
    assert weight_refusal(said, ask=make_ask("0.5"), bound=None) is None
    assert weight_refusal(said, ask=replace(make_ask("1"), resource="nvidia.com/gpu"), bound=bound) is None
    assert weight_refusal(said, ask=replace(make_ask("1"), gpu=None), bound=bound) is None


def test_a_weight_that_is_no_number_is_an_error() -> None:
    bound = bound_of([make_quota(maxPriority=50)], subject=POD)
    with pytest.raises(RequestError):
        weight_refusal({names.PRIORITY: "x"}, ask=make_ask("0.5"), bound=bound)


def test_a_pod_s_spec_is_kept_to_pools_unless_they_are_refused() -> None:
    spec = {"containers": []}
    refused = limited(pools=["fast"]).pools_of(gpujob(pool="slow"))
    assert spec_in_pools(spec, pools=refused) is spec
    assert "fast" in str(spec_in_pools(spec, pools=("fast",)))
