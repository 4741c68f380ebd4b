"""The queue's decisions: scenarios as data, and properties against a model that places every job on its own."""

from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dovetail.api.gpujob import QueuePlace
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import MessageDetail
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.settings import Weights
from dovetail.queue.cycle import SchedulingCycle, admit
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, ClaimCache, Leaving, claim_on_the_way, commit, order, way_of
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger


def make_job(
    name: str, gpu: str = "1", *, workers: int = 1, priority: int = 10, at: int = 0, site: str = ""
) -> Candidate:
    return Candidate(
        key=f"uid-{name}",
        ask=make_ask(gpu),
        workers=workers,
        priority=priority,
        created=f"2026-01-01T00:00:{at:02d}Z",
        name=f"team/{name}",
        site=site,
    )


def decide(*waiting: Candidate, ledger: Ledger, on_the_way: tuple[Candidate, ...] = ()) -> dict[str, Verdict]:
    copy = ledger.copy()
    claim_on_the_way(on_the_way, ledger=copy, sites={})
    return {verdict.key.removeprefix("uid-"): verdict for verdict in admit(waiting, ledger=copy, sites={})}


def admitted(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in verdicts.items() if isinstance(verdict, Admitted)}


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    free: int
    waiting: tuple[Candidate, ...]
    starts: set[str]
    on_the_way: tuple[Candidate, ...] = ()


CASES = (
    Case(says="a job that fits starts", free=1, waiting=(make_job("a"),), starts={"a"}),
    Case(
        says="the higher priority goes first, however young",
        free=1,
        waiting=(make_job("old", at=0, priority=10), make_job("vip", at=9, priority=11)),
        starts={"vip"},
    ),
    Case(
        says="among equal priorities the older goes first",
        free=1,
        waiting=(make_job("young", at=9), make_job("old", at=1)),
        starts={"old"},
    ),
    Case(
        says="among equals the name decides",
        free=1,
        waiting=(make_job("b"), make_job("a")),
        starts={"a"},
    ),
    Case(
        says="a smaller job passes one that does not fit",
        free=2,
        waiting=(make_job("large", "4", at=0), make_job("small", "2", at=1)),
        starts={"small"},
    ),
    Case(
        says="all workers or none",
        free=3,
        waiting=(make_job("gang", "2", workers=2),),
        starts=set(),
    ),
    Case(
        says="room of an admitted job without nodes is not given twice",
        free=2,
        waiting=(make_job("next", "1"),),
        on_the_way=(make_job("first", "2"),),
        starts=set(),
    ),
    Case(
        says="workers on the way claim what there is when all do not fit",
        free=3,
        waiting=(make_job("next", "2"),),
        on_the_way=(make_job("first", "2", workers=2),),
        starts=set(),
    ),
    Case(
        says="shares of one device are packed",
        free=1,
        waiting=(make_job("a", "0.5"), make_job("b", "0.5"), make_job("c", "0.5")),
        starts={"a", "b"},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_scenario(case: Case) -> None:
    ledger = make_ledger(n=case.free)
    verdicts = decide(*case.waiting, ledger=ledger, on_the_way=case.on_the_way)
    assert admitted(verdicts) == case.starts
    assert len(verdicts) == len(case.waiting)


def test_a_job_that_waits_is_told_the_reason_with_numbers() -> None:
    ledger = make_ledger(n=4)
    hold_devices(ledger, "n", 0, 1, 2)
    verdicts = decide(make_job("a", "4"), ledger=ledger)
    assert verdicts["a"] == Waits(
        key="uid-a",
        reason="Resources",
        message="Need 4 GPUs, only 1 available",
        details=(MessageDetail(code="TooFewGPUs", parameters={"count": "4", "available": "1"}),),
        queue=QueuePlace(position=1),
    )


def test_a_job_without_gpu_starts_on_a_cluster_without_gpus() -> None:
    job = Candidate(key="uid-cpu", ask=Ask(gpu=None, cpu_milli=4000))
    assert admitted(decide(job, ledger=Ledger())) == {"cpu"}


TOO_MANY_CPUS = MessageDetail(code="MachineCPUs", parameters={"cpus": "2.5", "most": "2"})


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (Candidate(key="uid-x", ask=Ask(gpu=None, cpu_milli=2000, memory_mib=4096)), ""),
        (Candidate(key="uid-x", ask=Ask(gpu=None, cpu_milli=1000), workers=3, least=2), ""),
        (
            Candidate(key="uid-x", ask=Ask(gpu=None, cpu_milli=100_000)),
            "Need 100 CPUs: the largest request that fits this machine is 2",
        ),
        (
            Candidate(key="uid-x", ask=Ask(gpu=None, memory_mib=4097)),
            "Need 4097 MiB of memory: the largest request that fits this machine is 4096 MiB",
        ),
        (
            Candidate(key="uid-x", ask=Ask(gpu=None, cpu_milli=1000), workers=3),
            "At most 2 of 3 workers with 1000m CPU and 0 MiB of memory each could ever run together on this machine",
        ),
        (
            Candidate(key="uid-x", ask=Ask(gpu=None), workers=9),
            "At most 8 of 9 workers with 0m CPU and 0 MiB of memory each could ever run together on this machine",
        ),
        (
            Candidate(key="uid-x", ask=make_ask("1", cpu_milli=9000), cpu_in_seconds=float("inf")),
            "Need 9 CPUs: the largest request that fits this machine is 2",
        ),
    ],
)
def test_what_a_machine_of_ones_own_can_never_run_says_what_it_can(job: Candidate, says: str) -> None:
    ledger = Ledger()
    add_node(ledger, "local", gpus=0, cpu_milli=2000, memory_mib=4096, pods=8, one_machine=True)
    (verdict,) = admit([job], ledger=ledger, sites={})
    assert isinstance(verdict, Waits) == bool(says)
    assert isinstance(verdict, Admitted) or (verdict.reason, verdict.message) == ("ExceedsCapacity", says)


def test_the_sentence_about_one_machine_has_its_parameters() -> None:
    ledger = Ledger()
    add_node(ledger, "local", gpus=0, cpu_milli=2000, one_machine=True)
    (verdict,) = admit([Candidate(key="uid-x", ask=Ask(gpu=None, cpu_milli=2500))], ledger=ledger, sites={})
    assert isinstance(verdict, Waits)
    assert verdict.details == (TOO_MANY_CPUS,)


def test_a_larger_node_may_join_a_cluster_so_its_scheduler_looks_for_the_room() -> None:
    job = Candidate(key="uid-x", ask=Ask(gpu=None, cpu_milli=100_000))
    assert admitted(decide(job, ledger=make_ledger(a=8))) == {"x"}
    ledger = make_ledger(a=8)
    add_node(ledger, "local", gpus=0, one_machine=True)
    assert admitted(decide(job, ledger=ledger)) == {"x"}


VISION = Subject(namespace="vision", user="ada")


def quota_of(gpus: int) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": "vision"}, "spec": {"limit": {"gpus": gpus}}}, GPUQuota)


def elastic_under(gpus: int, *, ledger: Ledger) -> list[Verdict]:
    """Four workers of one GPU, at least one of them, and a job of one GPU after it, under a quota of so many GPUs."""
    elastic = replace(make_job("elastic", "1"), workers=4, least=1)
    after = make_job("after", "1", at=1)
    quota = quota_of(gpus)
    terms = {
        elastic.key: limits_of([quota], subject=VISION, takes=Takes(milli=4000), workers=4, least=1),
        after.key: limits_of([quota], subject=VISION, takes=Takes(milli=1000)),
    }
    return list(admit([elastic, after], ledger=ledger, sites={}, gate=LimitGate(terms)))


@pytest.mark.parametrize(
    ("gpus", "nodes", "workers", "limit", "after_starts"),
    [
        (8, 8, 4, "", True),
        (3, 8, 3, "GPUQuota vision", False),
        (8, 2, 2, "", False),
        (3, 2, 2, "", False),
        (3, 3, 3, "GPUQuota vision", False),
    ],
    ids=[
        "room and quota for all", "the quota leaves fewer", "the nodes leave fewer",
        "the nodes leave fewer than the quota does", "both leave as many",
    ],
)  # fmt: skip
def test_an_elastic_job_says_what_leaves_it_fewer_workers_and_takes_no_more_than_it_starts_with(
    gpus: int, nodes: int, workers: int, limit: str, after_starts: bool
) -> None:
    first, second = elastic_under(gpus, ledger=make_ledger(n=nodes))
    assert isinstance(first, Admitted)
    assert (len(first.claims), first.limit) == (workers, limit)
    assert isinstance(second, Admitted) is after_starts


def test_what_an_elastic_job_started_without_is_left_of_the_quota_to_others() -> None:
    """A quota of four and room for three on each of two kinds of nodes: two workers start, so two GPUs are left."""
    ledger = make_ledger(n=2)
    add_node(ledger, "t", gpus=2, model="T4")
    quota = quota_of(4)
    elastic = replace(make_job("elastic", "1(V100)"), workers=4, least=1)
    others = [make_job(name, "1(T4)", at=at) for at, name in enumerate("ab", start=1)]
    terms = {elastic.key: limits_of([quota], subject=VISION, takes=Takes(milli=4000), workers=4, least=1)}
    terms |= {job.key: limits_of([quota], subject=VISION, takes=Takes(milli=1000)) for job in others}
    found = list(admit([elastic, *others], ledger=ledger, sites={}, gate=LimitGate(terms)))
    assert [isinstance(each, Admitted) for each in found] == [True, True, True]


def test_an_end_that_comes_early_lets_the_first_start_early() -> None:
    """It reserved the end by the time limit; a look ahead at when the job is likely to end starts it there."""
    ledger = make_ledger(n=2)
    running = replace(make_job("r", "2"), run_seconds=5 * 3600.0, limited=True, likely_seconds=3600.0)
    placed = place(ledger, ask=running.ask, workers=1, key=running.key)
    assert not isinstance(placed, Shortage)
    (end,) = commit(placed, job=running, ledger=ledger)
    waiting = make_job("w", "2")
    look = SchedulingCycle(ledger, sites={}, leaving=[end])
    found = look.at(waiting)
    assert isinstance(found, Waits)
    assert found.kept is not None
    assert found.kept.at_seconds == 5 * 3600.0
    assert look.advance() is not None
    assert look.now == 3600.0
    assert isinstance(look.at(waiting), Admitted)
    assert look.advance() is not None, "its own end"


def test_ends_that_are_close_together_are_taken_together() -> None:
    """Within 10 s, or half a percent of how far away they are."""
    ledger = make_ledger(n=4)
    times = {"a": 100.0, "b": 110.0, "c": 110.5, "d": 10_000.0, "e": 10_050.0}
    for name in times:
        commit([Claim(key=name, node="n", cpu_milli=1)], job=make_job(name), ledger=ledger)
    ends = [Leaving(at_seconds=at, key=name, job=name) for name, at in times.items()]
    look = SchedulingCycle(ledger, sites={}, leaving=ends)
    seen = []
    while (gone := look.advance()) is not None:
        seen.append((look.now, [end.key for end, _ in gone]))
    assert seen == [(110.0, ["a", "b"]), (110.5, ["c"]), (10_050.0, ["d", "e"])]


def test_a_job_is_placed_on_the_nodes_of_its_site_only() -> None:
    ledger = make_ledger(a=1, b=1)
    waiting = [make_job("x", at=0, site="only-b"), make_job("y", at=1, site="only-b"), make_job("z", at=2)]
    verdicts = {verdict.key: verdict for verdict in admit(waiting, ledger=ledger, sites={"only-b": ["b"]})}
    first, second, third = (verdicts[job.key] for job in waiting)
    assert isinstance(first, Admitted)
    assert [claim.node for claim in first.claims] == ["b"]
    assert isinstance(second, Waits)
    assert isinstance(third, Admitted)


def test_equal_shapes_cost_one_placement_when_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(ledger: Ledger, ask: Ask, **rest: object) -> object:
        calls.append(str(ask.gpu))
        return place(ledger, ask=ask, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("dovetail.queue.model.candidates.place", counting)
    jobs = [make_job(f"j{number}", "2" if number % 2 else "4") for number in range(1000)]
    assert not admitted(decide(*jobs, ledger=make_ledger(n=1)))
    assert sorted(calls) == ["2", "4"]


# --- properties ------------------------------------------------------------------------------------------------------

jobs_strategy = st.lists(
    st.builds(
        lambda gpu, workers, priority, at: (gpu, workers, priority, at),
        st.sampled_from(["1", "2", "4", "0.5", "0.25", "8G,0.5", "2(V100)"]),
        st.integers(1, 3),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=14,
)
nodes_strategy = st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3)


def build_jobs(drawn: list[tuple[str, int, int, int]]) -> list[Candidate]:
    return [
        make_job(f"{number:02d}", gpu, workers=workers, priority=priority, at=at)
        for number, (gpu, workers, priority, at) in enumerate(drawn)
    ]


def build_ledger(nodes: list[int]) -> Ledger:
    return make_ledger(**{f"n{number}": gpus for number, gpus in enumerate(nodes)})


@settings(max_examples=60, deadline=None)
@given(jobs_strategy, nodes_strategy)
def test_no_job_is_lost_and_none_is_told_twice(drawn: list[tuple[str, int, int, int]], nodes: list[int]) -> None:
    jobs = build_jobs(drawn)
    verdicts = list(admit(jobs, ledger=build_ledger(nodes), sites={}))
    assert [verdict.key for verdict in verdicts] == [job.key for job in order(jobs)]


@settings(max_examples=60, deadline=None)
@given(jobs_strategy, nodes_strategy)
def test_no_device_is_promised_beyond_itself(drawn: list[tuple[str, int, int, int]], nodes: list[int]) -> None:
    jobs = build_jobs(drawn)
    promised: dict[str, int] = {}
    workers: dict[str, int] = {}
    for verdict in admit(jobs, ledger=build_ledger(nodes), sites={}):
        for claim in verdict.claims if isinstance(verdict, Admitted) else ():
            workers[verdict.key] = workers.get(verdict.key, 0) + 1
            for device in claim.devices:
                promised[device.uuid] = promised.get(device.uuid, 0) + device.share_milli
    assert all(milli <= 1000 for milli in promised.values())
    assert all(workers[job.key] == job.workers for job in jobs if job.key in workers)


@settings(max_examples=60, deadline=None)
@given(jobs_strategy, nodes_strategy)
def test_among_equal_shapes_the_order_is_kept(drawn: list[tuple[str, int, int, int]], nodes: list[int]) -> None:
    jobs = order(build_jobs(drawn))
    verdicts = list(admit(jobs, ledger=build_ledger(nodes), sites={}))
    refused: set[tuple[Ask, int]] = set()
    for job, verdict in zip(jobs, verdicts, strict=True):
        shape = (job.ask, job.workers)
        assert not (isinstance(verdict, Admitted) and shape in refused)
        if isinstance(verdict, Waits):
            refused.add(shape)


@settings(max_examples=60, deadline=None)
@given(jobs_strategy, nodes_strategy)
def test_up_to_the_first_that_waits_it_decides_as_placing_each_job_on_its_own_does(
    drawn: list[tuple[str, int, int, int]], nodes: list[int]
) -> None:
    jobs = order(build_jobs(drawn))
    model, waits = build_ledger(nodes), False
    for job, verdict in zip(jobs, admit(jobs, ledger=build_ledger(nodes), sites={}), strict=True):
        found = place(model, ask=job.ask, workers=job.workers, key=job.key)
        fits = not isinstance(found, Shortage)
        assert fits or isinstance(verdict, Waits)
        assert fits == isinstance(verdict, Admitted) or waits
        waits = waits or (isinstance(verdict, Waits) and not fits and verdict.reason != "ExceedsCapacity")
        for claim in verdict.claims if isinstance(verdict, Admitted) else ():
            model.commit(claim)


def both_ways(job: Candidate) -> Candidate:
    return replace(job, others=(replace(job.ask, resource="nvidia.com/gpu"),))


def make_mixed_ledger(*, managed: int, vendor: int) -> Ledger:
    ledger = Ledger()
    if managed:
        add_node(ledger, "managed", gpus=managed)
    if vendor:
        add_node(ledger, "vendor", gpus=vendor, managed=False, resource="nvidia.com/gpu", offered=vendor)
    return ledger


@pytest.mark.parametrize(
    ("managed", "vendor", "resource"),
    [(2, 2, ""), (1, 2, "nvidia.com/gpu"), (0, 2, "nvidia.com/gpu")],
    ids=["the first way has room", "only the second has", "only the second is there"],
)
def test_a_job_is_met_in_the_first_way_that_has_room_for_all_of_it(managed: int, vendor: int, resource: str) -> None:
    (verdict,) = admit(
        [both_ways(make_job("x", "2"))], ledger=make_mixed_ledger(managed=managed, vendor=vendor), sites={}
    )
    assert isinstance(verdict, Admitted)
    assert verdict.ask is not None
    assert verdict.ask.resource == resource
    assert {claim.resource for claim in verdict.claims} == {resource}


@pytest.mark.parametrize(
    ("managed", "vendor", "reason", "message"),
    [
        (8, 2, "Resources", "Need 4 GPUs, only 0 available"),
        (2, 2, "ExceedsCapacity", "Need 4 GPUs, only 2 available on one node"),
        (0, 2, "ExceedsCapacity", "Need 4 GPUs, only 2 available on one node"),
        (0, 0, "ExceedsCapacity", "no node reports a GPU"),
    ],
    ids=["the way that could have it", "neither could", "one way is there", "none is there"],
)
def test_a_job_that_no_way_has_room_for_is_told_of_the_one_that_could(
    managed: int, vendor: int, reason: str, message: str
) -> None:
    ledger = make_mixed_ledger(managed=managed, vendor=vendor)
    if managed == 8:
        hold_devices(ledger, "managed", *range(8))
    (verdict,) = admit([both_ways(make_job("x", "4"))], ledger=ledger, sites={})
    assert isinstance(verdict, Waits)
    assert verdict.reason == reason
    assert message in verdict.message


def test_a_way_that_no_node_of_the_job_s_serves_says_nothing() -> None:
    job = replace(both_ways(make_job("x", "4")), site="vendor alone")
    ledger = make_mixed_ledger(managed=8, vendor=2)
    (verdict,) = admit([job], ledger=ledger, sites={"vendor alone": ["vendor", "never seen"]})
    assert isinstance(verdict, Waits)
    assert "Need 4 GPUs, only 2 available on one node" in verdict.message


@pytest.mark.parametrize(
    ("text", "resource"),
    [("2", ""), ("3", "nvidia.com/gpu"), ("8", "")],
    ids=["has room", "could have room", "none ever could"],
)
def test_the_way_of_a_job_is_the_one_of_which_it_is_told(text: str, resource: str) -> None:
    ledger = make_mixed_ledger(managed=2, vendor=4)
    assert way_of(both_ways(make_job("x", text)), ledger=ledger, sites={}).resource == resource


def test_two_jobs_never_get_the_same_devices_of_a_vendor_s_node() -> None:
    jobs = [both_ways(make_job(name, "2")) for name in ("x", "y")]
    verdicts = list(admit(jobs, ledger=make_mixed_ledger(managed=0, vendor=2), sites={}))
    assert [type(verdict) for verdict in verdicts] == [Admitted, Waits]


def on_the_way(name: str, gpu: str, *nodes: str) -> Candidate:
    """A job whose plan stands, without a pod on its nodes yet."""
    return replace(make_job(name, gpu, workers=len(nodes)), nodes=nodes)


def test_planned_workers_claim_room_on_their_own_nodes() -> None:
    ledger = make_ledger(a=4, b=4)
    found = claim_on_the_way([on_the_way("x", "2", "b", "b", "a")], ledger=ledger, sites={})
    assert found.lost == {}
    assert [ledger.claim(f"uid-x/{worker}").node for worker in range(3)] == ["b", "b", "a"]  # type: ignore[union-attr]


def test_a_plan_without_room_on_one_of_its_nodes_is_lost() -> None:
    ledger = make_ledger(a=4, b=4)
    hold_devices(ledger, "b", 0, 1, 2)
    found = claim_on_the_way([on_the_way("x", "2", "b", "a"), on_the_way("y", "2", "a")], ledger=ledger, sites={})
    assert found.lost == {"uid-x": "b"}
    assert ledger.claim("uid-x/1") is not None


def test_a_plan_on_a_node_that_is_gone_is_lost() -> None:
    ledger = make_ledger(a=4)
    assert claim_on_the_way([on_the_way("x", "2", "gone")], ledger=ledger, sites={}).lost == {"uid-x": "gone"}


def test_a_planned_worker_waits_for_those_who_are_leaving_its_node() -> None:
    ledger = make_ledger(a=4)
    going = place(ledger, ask=make_ask("3"), workers=1, key="going")
    assert not isinstance(going, Shortage)
    ledger.commit(going[0])
    job = on_the_way("x", "2", "a")
    assert claim_on_the_way([job], ledger=ledger.copy(), sites={}).lost == {"uid-x": "a"}
    assert claim_on_the_way([job], ledger=ledger, sites={}, going=[going[0].key]).lost == {}
    assert ledger.claim(going[0].key) is not None


def test_that_a_planned_worker_waits_for_others_is_told_by_each_look() -> None:
    """Else kube-scheduler, which refuses it until then, would be taken for one that never follows the plan."""
    ledger = make_ledger(a=4)
    going = place(ledger, ask=make_ask("3"), workers=1, key="going")
    assert not isinstance(going, Shortage)
    ledger.commit(going[0])
    standing, jobs, keys = ClaimCache(ledger.changed_at), [on_the_way("x", "2", "a")], [going[0].key]
    for _ in range(2):
        found = claim_on_the_way(jobs, ledger=ledger.copy(), sites={}, going=keys, standing=standing)
        assert found.late == {"uid-x"}


def test_what_planned_workers_were_given_stands_until_their_node_changes() -> None:
    ledger, looks = make_ledger(a=4, b=4), list[str]()

    def version(node: str) -> int:
        looks.append(node)
        return ledger.changed_at(node)

    standing = ClaimCache(version)
    jobs = [on_the_way("x", "2", "a", "b"), on_the_way("y", "1", "b")]
    given = []
    for _ in range(2):
        copy = ledger.copy()
        claim_on_the_way(jobs, ledger=copy, sites={}, standing=standing)
        given.append([copy.claim(key) for key in ("uid-x/0", "uid-x/1", "uid-y/0")])
    assert given[0] == given[1]
    hold_devices(ledger, "b", 0, 1, 2)
    found = claim_on_the_way(jobs, ledger=ledger.copy(), sites={}, standing=standing)
    assert found.lost == {"uid-x": "b"}
    assert set(looks) == {"a", "b"}


def test_others_on_the_same_node_are_given_anew_when_one_of_them_is_bound() -> None:
    ledger = make_ledger(a=4)
    standing = ClaimCache(ledger.changed_at)
    both = [on_the_way("x", "2", "a"), on_the_way("y", "2", "a")]
    claim_on_the_way(both, ledger=ledger.copy(), sites={}, standing=standing)
    found = claim_on_the_way(both[1:], ledger=(copy := ledger.copy()), sites={}, standing=standing)
    assert (found.lost, len(copy.claims())) == ({}, 1)


@pytest.mark.parametrize(("weights", "node"), [(Weights(), "hosts"), (Weights(cpu=9), "cards")])
def test_the_configured_weights_choose_the_nodes_of_a_plan(weights: Weights, node: str) -> None:
    ledger = Ledger()
    for name in ("cards", "hosts"):
        add_node(ledger, name, gpus=2)
    hold_devices(ledger, "cards", 0, memory_mib=32768)
    ledger.commit(Claim(key="busy", node="hosts", cpu_milli=48000))
    job = make_job("a")
    verdict = decide(replace(job, ask=replace(job.ask, policy="Spread", weights=weights)), ledger=ledger)["a"]
    assert isinstance(verdict, Admitted)
    assert [claim.node for claim in verdict.claims] == [node]


def test_each_step_of_a_job_is_a_line_of_the_log_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    ledger = make_ledger(n=4)
    hold_devices(ledger, "n", 0, 1, 2)
    with capture_logs() as silent:
        decide(make_job("a", "4"), ledger=ledger.copy())
    caplog.set_level("DEBUG", logger="dovetail.queue")
    with capture_logs() as lines:
        decide(make_job("a", "4"), make_job("b", "1"), ledger=ledger)
    assert silent == []
    assert [(line["event"], line["found"]) for line in lines] == [
        ("1. nominate", "Resources: Need 4 GPUs, only 1 available"),
        ("2. limits", "nothing"),
        ("3. reservations", "Resources: Need 4 GPUs, only 1 available"),
        ("6. preempt or reserve", "Resources: Need 4 GPUs, only 1 available"),
        ("1. nominate", "n"),
        ("2. limits", "nothing"),
        ("3. reservations", "n"),
    ]
