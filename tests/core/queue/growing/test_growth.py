"""Requests for new nodes: scenarios as data, and the property that they never delay what can start now."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.api.builtin import Node, Taint
from dovetail.api.gpujob import Provisioning
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.formats.durations import timestamp
from dovetail.queue.cycle import admit
from dovetail.queue.growing.future_nodes import FutureNodes, missing_nodes
from dovetail.queue.growing.growth import Growth, build_growth
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail.queue.inputs.candidates import site_of
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.pools import in_pools
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Leaving
from dovetail.queue.model.gate import Gate
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from tests.core.engine.builders import hold_devices, make_ask, make_ledger
from tests.core.engine.gang.topologies import ZONE, topology

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
POOL = GrowingPool(
    name="a100",
    labels={"pool": "a100"},
    max_nodes=4,
    gpus=8,
    model="A100-SXM4-80GB",
    gpu_memory_mib=81920,
    cpu_milli=96_000,
    memory_mib=1_000_000,
)
RULES = GrowingRules(pools=(POOL,), after_seconds=60, give_up_seconds=900, back_off_seconds=600)


def make_job(name: str, gpu: str = "1", *, workers: int = 1, waited: float = 600, **more: Any) -> Candidate:
    created = timestamp(NOW - timedelta(seconds=waited))
    return Candidate(key=name, ask=make_ask(gpu), workers=workers, created=created, name=f"team/{name}", **more)


def make_gang(name: str, gpu: str, *, workers: int, **rules: Any) -> Candidate:
    job = make_job(name, gpu, workers=workers)
    return replace(job, ask=replace(job.ask, topology=topology(**rules)))


def make_node(name: str, *, created: datetime = NOW, labels: dict[str, str] | None = None, **spec: Any) -> Node:
    meta = {"name": name, "labels": labels or {"pool": "a100"}, "creationTimestamp": timestamp(created)}
    return msgspec.convert({"metadata": meta, "spec": spec}, Node)


def make_growth(
    *,
    pools: Sequence[GrowingPool] = (POOL,),
    room: int = 4,
    requests: dict[str, Provisioning] | None = None,
    nodes: Sequence[Node] = (),
    gate: Gate | None = None,
    limits: Ledger | None = None,
) -> Growth:
    ledger = limits or Ledger()
    return Growth(
        replace(RULES, pools=tuple(pools)),
        pools=lambda: [FutureNodes(pool, room=room, limits=ledger.limits) for pool in pools],
        requests=requests or {},
        nodes={node.metadata.name: node for node in nodes},
        now=NOW,
        gate=gate,
    )


def decide(*waiting: Candidate, ledger: Ledger, growth: Growth | None, gate: Gate | None = None) -> dict[str, Verdict]:
    found = admit(waiting, ledger=ledger.copy(), sites={}, gate=gate, growth=growth)
    return {verdict.key: verdict for verdict in found}


def told(verdict: Verdict) -> tuple[str, str]:
    assert isinstance(verdict, Waits)
    return verdict.reason, verdict.message


def request_of(verdict: Verdict) -> Provisioning:
    assert isinstance(verdict, Waits)
    assert verdict.provisioning is not None
    return verdict.provisioning


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    waiting: tuple[Candidate, ...]
    expected: dict[str, tuple[str, int, int] | str]
    """By job: the pool, nodes and workers of its request, else the reason of its verdict; `starts` if it does."""
    pools: tuple[GrowingPool, ...] = (POOL,)
    room: int = 4
    free: dict[str, int] = field(default_factory=lambda: {"old": 4})


CASES = (
    Case(
        says="a job that is too large for every node gets a new one",
        waiting=(make_job("x", "8"),),
        expected={"x": ("a100", 1, 1)},
    ),
    Case(
        says="a job that starts now requests nothing",
        waiting=(make_job("x", "4"),),
        expected={"x": "starts"},
    ),
    Case(
        says="two small jobs share one new node, and each says so",
        waiting=(make_job("big", "4"), make_job("x", "4"), make_job("y", "4")),
        expected={"big": "starts", "x": ("a100", 1, 1), "y": ("a100", 1, 1)},
    ),
    Case(
        says="a gang requests nodes only for the workers that do not fit on existing ones",
        waiting=(make_job("gang", "4", workers=5),),
        expected={"gang": ("a100", 2, 4)},
    ),
    Case(
        says="a job that existing nodes can serve waits for them first",
        waiting=(make_job("first", "4"), make_job("x", "4", waited=10)),
        expected={"first": "starts", "x": "Resources"},
    ),
    Case(
        says="a job that no existing node can serve does not wait for them",
        waiting=(make_job("x", "8", waited=0),),
        expected={"x": ("a100", 1, 1)},
    ),
    Case(
        says="a job that not even a new node can serve never fits",
        waiting=(make_job("x", "16"),),
        expected={"x": "ExceedsCapacity"},
    ),
    Case(
        says="a job of another model never fits",
        waiting=(make_job("x", "8(H100)"),),
        expected={"x": "ExceedsCapacity"},
    ),
    Case(
        says="a gang larger than the pool never fits",
        waiting=(make_job("x", "8", workers=5),),
        expected={"x": "ExceedsCapacity"},
    ),
    Case(
        says="a pool whose nodes other jobs wait for makes the next one wait",
        waiting=(make_job("first", "8", workers=3), make_job("next", "8", workers=2)),
        expected={"first": ("a100", 3, 3), "next": "Resources"},
    ),
    Case(
        says="what no plan uses of a new node is left to later jobs",
        waiting=(make_job("first", "5", waited=900), make_job("next", "3", workers=2)),
        expected={"first": ("a100", 1, 1), "next": "starts"},
        free={"old": 4, "other": 4},
    ),
    Case(
        says="a job that tolerates no taint of the pool does not request its nodes",
        waiting=(make_job("x", "8"),),
        expected={"x": "ExceedsCapacity"},
        pools=(replace(POOL, taints=(Taint(key="gpu", effect="NoSchedule"),)),),
    ),
    Case(
        says="a tolerant job does",
        waiting=(make_job("x", "8", site='{"tolerations": [{"key": "gpu", "operator": "Exists"}]}'),),
        expected={"x": ("a100", 1, 1)},
        pools=(replace(POOL, taints=(Taint(key="gpu", effect="NoSchedule"),)),),
    ),
    Case(
        says="the first pool that has room is used",
        waiting=(make_job("x", "8"),),
        expected={"x": ("second", 1, 1)},
        pools=(replace(POOL, name="first", gpus=4), replace(POOL, name="second")),
    ),
    Case(
        says="a gang is not split over managed nodes and those of a device plugin",
        waiting=(
            replace(make_job("gang", "4", workers=5), others=(replace(make_ask("4"), resource="nvidia.com/gpu"),)),
        ),
        expected={"gang": ("plugin", 3, 5)},
        pools=(replace(POOL, name="plugin", resource="nvidia.com/gpu"),),
    ),
    Case(
        says="a gang of one host requests a node for all its workers",
        waiting=(make_gang("gang", "4", workers=2, required="host"),),
        expected={"gang": ("a100", 1, 2)},
    ),
    Case(
        says="a gang of one host that no new node can hold never fits",
        waiting=(make_gang("gang", "4", workers=3, required="host"),),
        expected={"gang": "ExceedsCapacity"},
    ),
    Case(
        says="a gang of one rack requests no node of which the rack is unknown",
        waiting=(make_gang("gang", "8", workers=2, required="rack"),),
        expected={"gang": "ExceedsCapacity"},
    ),
    Case(
        says="a gang of one zone requests nodes of a pool in one zone",
        waiting=(make_gang("gang", "8", workers=2, required="zone"),),
        expected={"gang": ("a100", 2, 2)},
        pools=(replace(POOL, labels={"pool": "a100", ZONE: "z0"}),),
    ),
    Case(
        says="a gang with groups requests nodes for whole groups",
        waiting=(make_gang("gang", "4", workers=4, group_size=2, group_level="host"),),
        expected={"gang": ("a100", 2, 4)},
    ),
    Case(
        says="a gang that needs all nodes of a full pool and existing ones may fit later",
        waiting=(make_job("first", "8", priority=1), make_job("gang", "4", workers=3)),
        expected={"first": ("a100", 1, 1), "gang": "Resources"},
        room=1,
        pools=(replace(POOL, max_nodes=1),),
    ),
    Case(
        says="a job without GPUs requests no nodes",
        waiting=(replace(make_job("x"), ask=replace(make_ask("1"), gpu=None)),),
        expected={"x": "starts"},
    ),
    Case(
        says="an elastic job requests nodes for its smallest number of workers",
        waiting=(make_job("x", "8", workers=4, least=2),),
        expected={"x": ("a100", 2, 2)},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_requests_follow_the_plan(case: Case) -> None:
    verdicts = decide(
        *case.waiting, ledger=make_ledger(**case.free), growth=make_growth(pools=case.pools, room=case.room)
    )
    found = {
        name: "starts"
        if isinstance(verdict, Admitted)
        else (verdict.provisioning.pool, verdict.provisioning.nodes, verdict.provisioning.workers)
        if verdict.provisioning
        else verdict.reason
        for name, verdict in verdicts.items()
    }
    assert found == case.expected


def test_the_job_says_what_was_requested_and_when() -> None:
    verdict = decide(make_job("x", "8", workers=2), ledger=make_ledger(old=4), growth=make_growth())["x"]
    assert told(verdict) == ("Provisioning", "2 nodes of pool a100 requested at 2026-01-01T12:00:00Z")


def make_request(*, ago: float, nodes: int = 2, workers: int = 2, failures: int = 0, **more: Any) -> Provisioning:
    at = timestamp(NOW - timedelta(seconds=ago))
    return Provisioning(
        pool=more.pop("pool", "a100"), nodes=nodes, workers=workers, requested_time=at, failures=failures, **more
    )


def test_a_request_under_way_keeps_its_time_and_never_shrinks() -> None:
    before = make_request(ago=100, nodes=3, workers=3)
    growth = make_growth(requests={"x": before})
    assert request_of(decide(make_job("x", "8", workers=2), ledger=make_ledger(old=4), growth=growth)["x"]) == before


def test_a_request_is_given_up_after_its_time_and_made_again_after_the_back_off() -> None:
    growth = make_growth(requests={"x": make_request(ago=900, nodes=1, workers=1)})
    verdict = decide(make_job("x", "8"), ledger=make_ledger(old=4), growth=growth)["x"]
    assert told(verdict) == (
        "Provisioning",
        (
            "1 node of pool a100 requested at 2026-01-01T11:45:00Z did not serve it within 15m; requests again at "
            "2026-01-01T12:10:00Z"
        ),
    )
    resting = request_of(verdict)
    assert (resting.failures, growth.next_seconds) == (1, 600)
    same = make_growth(requests={"x": resting})
    assert request_of(decide(make_job("x", "8"), ledger=make_ledger(old=4), growth=same)["x"]) == resting
    over = msgspec.structs.replace(resting, retry_time=timestamp(NOW))
    again = make_growth(requests={"x": over})
    made = request_of(decide(make_job("x", "8"), ledger=make_ledger(old=4), growth=again)["x"])
    assert (made.requested_time, made.retry_time, made.failures) == (timestamp(NOW), None, 1)


@pytest.mark.parametrize(("failures", "minutes"), [(0, 10), (1, 20), (3, 80), (60, 360)])
def test_the_back_off_doubles_up_to_six_hours(failures: int, minutes: int) -> None:
    growth = make_growth(requests={"x": make_request(ago=1000, failures=failures)})
    resting = request_of(decide(make_job("x", "8"), ledger=make_ledger(old=4), growth=growth)["x"])
    assert resting.retry_time == timestamp(NOW + timedelta(minutes=minutes))


def test_after_a_request_that_was_given_up_another_pool_comes_first() -> None:
    over = make_request(ago=2000, nodes=1, workers=1, pool="a100", failures=1, retry_time=timestamp(NOW))
    growth = make_growth(pools=(POOL, replace(POOL, name="other")), requests={"x": over})
    assert request_of(decide(make_job("x", "8"), ledger=make_ledger(old=4), growth=growth)["x"]).pool == "other"


def test_a_request_under_way_stays_with_its_pool() -> None:
    before = make_request(ago=10, nodes=1, workers=1, pool="other")
    growth = make_growth(pools=(POOL, replace(POOL, name="other")), requests={"x": before})
    assert request_of(decide(make_job("x", "8"), ledger=make_ledger(old=4), growth=growth)["x"]).pool == "other"


def test_the_pool_is_full_message_names_the_pool_and_its_nodes() -> None:
    jobs = make_job("first", "8", workers=4), make_job("x", "8")
    verdict = decide(*jobs, ledger=make_ledger(old=4), growth=make_growth())["x"]
    assert told(verdict) == (
        "Resources",
        (
            "Need 8 GPUs, only 4 available on one node: pool a100 can have 4 nodes, and other jobs use them or wait "
            "for them"
        ),
    )


def make_gate(*names: str, gpus: int) -> LimitGate:
    quota = msgspec.convert({"metadata": {"name": "q"}, "spec": {"limit": {"gpus": gpus}}}, GPUQuota)
    subject = Subject(namespace="team", user="u")
    return LimitGate({name: limits_of([quota], subject=subject, takes=Takes(milli=8000)) for name in names})


def test_nodes_that_a_quota_refuses_are_not_requested() -> None:
    names = ("x", "y")
    jobs = make_job("x", "8"), make_job("y", "8")
    growth = make_growth(gate=make_gate(*names, gpus=8))
    found = decide(*jobs, ledger=make_ledger(old=4), growth=growth, gate=make_gate(*names, gpus=8))
    assert told(found["x"])[0] == "Provisioning"
    assert told(found["y"])[0] == "Quota", "what x requested counts"


def test_a_node_that_came_for_a_gang_is_kept_for_it() -> None:
    came = make_node("new")
    ledger = make_ledger(new=8)
    gang, small = make_job("gang", "8", workers=2, waited=900), make_job("small", "1")
    requests = {"gang": make_request(ago=30)}
    found = decide(gang, small, ledger=ledger, growth=make_growth(requests=requests, nodes=[came], room=3))
    assert told(found["gang"])[0] == "Provisioning"
    assert isinstance(found["small"], Waits)
    earlier = make_node("new", created=NOW - timedelta(hours=1))
    found = decide(gang, small, ledger=ledger, growth=make_growth(requests=requests, nodes=[earlier], room=3))
    assert isinstance(found["small"], Admitted), "that node was there before"


def test_a_node_that_is_kept_for_a_gang_is_kept_from_jobs_that_heed_a_reservation_too() -> None:
    ledger = make_ledger(old=8, new=9)
    hold_devices(ledger, "old", *range(7), key="r")
    site = '{"nodeSelector": {"pool": "old"}}'
    first, gang = make_job("first", "8", site=site, waited=3000), make_job("gang", "8", workers=2, waited=900)
    growth = make_growth(requests={"gang": make_request(ago=30)}, nodes=[make_node("new")], room=3)
    verdicts = admit(
        [first, make_job("before", waited=2000), gang, make_job("after")],
        ledger=ledger,
        sites={site: ["old"]},
        leaving=[Leaving(at_seconds=3600.0, key="r", job="r")],
        growth=growth,
    )
    found = {verdict.key: verdict for verdict in verdicts}
    assert [key for key, verdict in found.items() if isinstance(verdict, Admitted)] == ["before"]
    assert told(found["gang"])[0] == "Provisioning"


def test_a_node_that_came_for_a_request_that_was_given_up_is_kept_for_no_one() -> None:
    came = make_node("new", created=NOW - timedelta(minutes=5))
    gang, small = make_job("gang", "8", workers=2, waited=9000), make_job("small", "1")
    requests = {"gang": make_request(ago=1600, failures=1, retry_time=timestamp(NOW))}
    growth = make_growth(requests=requests, nodes=[came], room=3)
    found = decide(gang, small, ledger=make_ledger(new=8), growth=growth)
    assert request_of(found["gang"]).requested_time == timestamp(NOW)
    assert isinstance(found["small"], Admitted)


def test_an_elastic_job_counts_against_requests_with_the_workers_with_which_it_starts() -> None:
    elastic, other = make_job("x", "8", workers=4, least=1), make_job("y", "8")

    def gate() -> LimitGate:
        quota = msgspec.convert({"metadata": {"name": "q"}, "spec": {"limit": {"gpus": 16}}}, GPUQuota)
        subject = Subject(namespace="team", user="ada")
        terms = {
            "x": limits_of([quota], subject=subject, takes=Takes(milli=32_000), workers=4, least=1),
            "y": limits_of([quota], subject=subject, takes=Takes(milli=8000)),
        }
        return LimitGate(terms)

    found = decide(elastic, other, ledger=make_ledger(old=8), growth=make_growth(gate=gate()), gate=gate())
    started = found["x"]
    assert isinstance(started, Admitted)
    assert len(started.claims) == 1
    assert told(found["y"])[0] == "Provisioning"


@pytest.mark.parametrize(
    ("ready", "reports", "asks"),
    [("True", True, False), ("False", True, True), ("True", False, True)],
    ids=["it serves", "it is not ready", "its devices are not reported"],
)
def test_a_young_node_that_serves_nobody_yet_is_one_of_those_to_come(ready: str, reports: bool, asks: bool) -> None:
    pool = replace(POOL, max_nodes=1)
    node = make_node("new", labels={"pool": "a100", names.LABEL_MANAGED: "true"})
    status = {"allocatable": {"cpu": "96", "memory": "1000Gi"}, "conditions": [{"type": "Ready", "status": ready}]}
    view = ClusterView(ledger=Ledger())
    view.node_changed(msgspec.convert(msgspec.to_builtins(node) | {"status": status}, Node))
    if reports:
        devices = [{"index": 0, "uuid": "GPU-0", "vendor": "nvidia", "model": "A100", "memoryMiB": 81920}]
        view.gpunode_changed(msgspec.convert({"metadata": {"name": "new"}, "status": {"devices": devices}}, GPUNode))
    growth = build_growth(replace(RULES, pools=(pool,)), view=view, requests={}, gate=None, now=NOW)
    (verdict,) = decide(make_job("x", "8"), ledger=view.ledger, growth=growth).values()
    assert isinstance(verdict, Waits)
    assert (verdict.reason == "Provisioning") == asks


UNREGISTERED = [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]
HOUR_AGO = NOW - timedelta(hours=1)


@pytest.mark.parametrize(
    ("says", "node", "missing"),
    [
        ("one that serves is there", make_node("usable"), 3),
        ("a new one without devices is about to come", make_node("bare"), 4),
        ("an old one without devices is there", make_node("bare", created=HOUR_AGO), 3),
        ("a new one with a taint of its start is about to come", make_node("usable", taints=UNREGISTERED), 4),
        ("a cordoned one is there", make_node("bare", unschedulable=True), 3),
        ("one of another pool does not count", make_node("usable", labels={"pool": "h100"}), 4),
    ],
)
def test_which_nodes_a_pool_may_still_get(says: str, node: Node, missing: int) -> None:
    found = missing_nodes(POOL, nodes=[node], usable={"usable"}, since=NOW - timedelta(seconds=900))
    assert found == missing, says


REQUESTS = st.lists(
    st.tuples(st.sampled_from(["0.5", "1", "2", "4", "8", "9"]), st.integers(1, 4), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


@given(asked=REQUESTS, free=st.lists(st.integers(0, 8), min_size=1, max_size=4), room=st.integers(0, 4))
def test_plans_on_new_nodes_never_delay_what_can_start_now(
    asked: list[tuple[str, int, int]], free: list[int], room: int
) -> None:
    jobs = [
        make_job(f"j{at}", gpu, workers=workers, priority=priority) for at, (gpu, workers, priority) in enumerate(asked)
    ]
    ledger = make_ledger(**{f"n{at}": count for at, count in enumerate(free)})
    without = decide(*jobs, ledger=ledger, growth=None)
    grown = decide(*jobs, ledger=ledger, growth=make_growth(room=room))
    for key, verdict in without.items():
        if isinstance(verdict, Admitted):
            assert grown[key] == verdict
        else:
            assert isinstance(grown[key], Waits)


@given(asked=REQUESTS, room=st.integers(1, 4))
def test_new_nodes_are_never_promised_twice(asked: list[tuple[str, int, int]], room: int) -> None:
    jobs = [make_job(f"j{at}", gpu, workers=workers) for at, (gpu, workers, _) in enumerate(asked)]
    grown = decide(*jobs, ledger=make_ledger(), growth=make_growth(room=room))
    served = [job for job in jobs if isinstance(v := grown[job.key], Waits) and v.provisioning is not None]
    assert sum(job.gpus for job in served) <= 8 * room
    assert all(request_of(grown[job.key]).nodes <= room for job in served)


IN_POOL = site_of(in_pools({}, pools=["a100"]))
ELSEWHERE = site_of({"nodeSelector": {"disk": "ssd"}})


@pytest.mark.parametrize(
    ("site", "nodes", "grows", "starts"),
    [
        (IN_POOL, [], None, False),
        (IN_POOL, [], "t4", False),
        (IN_POOL, [], "a100", True),
        (IN_POOL, ["old"], None, True),
        (ELSEWHERE, [], None, True),
        ("", ["old"], None, True),
    ],
)
@pytest.mark.parametrize("gpu", ["", "99"])
def test_without_gpus_a_job_runs_in_a_pool_that_has_nodes_or_grows(
    site: str, nodes: list[str], grows: str | None, starts: bool, gpu: str
) -> None:
    """Also one that falls back to the CPU."""
    falls_back = {"ask": make_ask(gpu), "cpu_in_seconds": float("inf")} if gpu else {"ask": Ask(gpu=None)}
    job = Candidate(key="x", site=site, created=timestamp(NOW), **falls_back)
    growth = make_growth(pools=[replace(POOL, labels={names.LABEL_POOL: grows})]) if grows else None
    (verdict,) = admit([job], ledger=make_ledger(old=4), sites={site: nodes}, growth=growth)
    assert isinstance(verdict, Admitted) == starts
    assert starts or told(verdict) == ("ExceedsCapacity", "There is no node for it")
