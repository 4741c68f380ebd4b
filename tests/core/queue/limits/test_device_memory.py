"""How much device memory requests and promises count with in quotas, and quotas that name it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpuquota import GPUAmounts
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.queue.limits.device_memory import memory_of, memory_of_claim, model_of_claim
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.quota_tree.resources import GPUS, MEMORY
from tests.core.engine.builders import add_node, make_ask, make_device
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.quota_tree.builders import make_loans, make_quota, make_tree

GIB = 1024
VISION = Subject(namespace="vision", user="ada")


@pytest.fixture
def ledger() -> Ledger:
    """Two A100 of 80 GB, which report less, and four V100 of 32 GB."""
    ledger = Ledger()
    add_node(ledger, "a", gpus=0)
    ledger.set_devices("a", devices=[make_device("a", at, model="A100", memory_mib=79 * GIB) for at in range(2)])
    add_node(ledger, "v", gpus=4)
    return ledger


@pytest.mark.parametrize(
    ("text", "workers", "gib"),
    [
        pytest.param("2(A100)", 3, 480, id="whole GPUs count with all their memory"),
        pytest.param("1(V100)", 1, 32, id="the memory is that of the model"),
        pytest.param("1", 1, 80, id="a request for any model counts with the largest"),
        pytest.param("1(>=40G)", 1, 80, id="a size narrows the models"),
        pytest.param("2x8G,0.5", 2, 32, id="a share counts with the memory that it names"),
        pytest.param("0.5(V100)", 1, 12.7998046875, id="a share without memory counts with what it is promised"),
        pytest.param("2x1g.10gb", 1, 20, id="a MIG instance counts with its own"),
        pytest.param("1(H100)", 1, 0, id="a model that is not there counts for nothing"),
    ],
)
def test_a_request_counts_with_memory(ledger: Ledger, text: str, workers: int, gib: float) -> None:
    assert memory_of(make_ask(text), workers=workers, ledger=ledger, cards=ledger.models()) == int(gib * GIB)


@pytest.mark.parametrize(
    ("nodes", "gib"),
    [
        pytest.param({"v": 2}, 64, id="by the GPUs of its nodes"),
        pytest.param({"v": 1}, 112, id="and by the largest for workers without a node"),
        pytest.param({"gone": 2}, 160, id="and by the largest where the node is gone"),
    ],
)
def test_a_planned_job_counts(ledger: Ledger, nodes: Mapping[str, int], gib: int) -> None:
    assert memory_of(make_ask("1"), workers=2, ledger=ledger, cards=ledger.models(), nodes=nodes) == gib * GIB


def test_a_job_without_gpus_counts_with_none(ledger: Ledger) -> None:
    assert memory_of(None, workers=2, ledger=ledger, cards=ledger.models()) == 0


def claim(*shares: int, node: str = "v", mib: int = 1000, **more: object) -> Claim:
    devices = tuple(
        AllocatedDevice(index=at, uuid=make_device(node, at).uuid, share_milli=share, memory_mib=mib)
        for at, share in enumerate(shares)
    )
    return replace(Claim(key="x", node=node, devices=devices), **more)  # type: ignore[arg-type]  # a test names fields


@pytest.mark.parametrize(
    ("promise", "mib"),
    [
        pytest.param(claim(1000, 1000), 64 * GIB, id="whole GPUs by their nominal size"),
        pytest.param(claim(500), 1000, id="a share by what it is promised"),
        pytest.param(claim(unnamed=2, resource="nvidia.com/gpu"), 64 * GIB, id="GPUs that kubelet picks"),
        pytest.param(claim(instances=(("3g.40gb", 2),)), 80 * GIB, id="instances that kubelet picks"),
    ],
)
def test_a_promise_counts_with_memory(ledger: Ledger, promise: Claim, mib: int) -> None:
    assert memory_of_claim(promise, ledger=ledger) == mib


def test_a_pod_counts_for_the_model_that_it_holds(ledger: Ledger) -> None:
    assert model_of_claim(claim(1000), ledger=ledger) == "V100"
    assert model_of_claim(claim(), ledger=ledger) == ""


def test_a_cluster_counts_memory_once_a_quota_names_it(ledger: Ledger) -> None:
    quotas = Quotas()
    assert MEMORY not in quotas.capacity(ledger).known
    quotas.update(make_quota("vision", memory="100Gi"))
    add_node(ledger, "m", gpus=0)
    ledger.set_devices("m", devices=[replace(make_device("m", 0, healthy=False), uuid="MIG-0", mig="3g.40gb")])
    capacity = quotas.capacity(ledger)
    assert (capacity.known[MEMORY], capacity.usable[MEMORY]) == (328 * GIB, 288 * GIB)


def test_new_gpus_change_what_requests_count_with(ledger: Ledger) -> None:
    quotas = Quotas()
    quotas.update(make_quota("vision", limit={"memory": "100Gi"}))
    quotas.observe(ledger, now=datetime(2026, 1, 8, tzinfo=UTC))
    before = quotas.version
    assert quotas.memory_of(make_ask("1"), workers=1) == 80 * GIB
    add_node(ledger, "h", gpus=0)
    ledger.set_devices("h", devices=[make_device("h", 0, model="H200", memory_mib=141 * GIB)])
    quotas.observe(ledger, now=datetime(2026, 1, 8, tzinfo=UTC))
    assert quotas.version > before
    assert quotas.memory_of(make_ask("1"), workers=1) == 141 * GIB


# --- limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "takes", "used", "message"),
    [
        pytest.param(
            {"memory": "160Gi"},
            Takes(milli=1000, memory_mib=80 * GIB),
            120 * GIB,
            "Namespace vision may use 160 GiB of device memory, 120 GiB are in use, this job needs 80 GiB "
            "(GPUQuota vision)",
            id="memory",
        ),
        pytest.param(
            {"memory": "40Gi"},
            Takes(milli=1000, memory_mib=80 * GIB),
            0,
            "Namespace vision may use 40 GiB of device memory, 0 GiB are in use, this job would never fit, it needs "
            "80 GiB (GPUQuota vision)",
            id="memory that never suffices",
        ),
        pytest.param(
            {"models": {"A100": 2}},
            Takes(milli=2000, model="a100-80GB"),
            1000,
            "Namespace vision may run 2 GPUs of model A100, 1 run, this job needs 2 (GPUQuota vision)",
            id="a model, in any spelling",
        ),
    ],
)
def test_a_limit_keeps_a_job_waiting(limit: dict[str, object], takes: Takes, used: int, message: str) -> None:
    (found,) = limits_of([make_quota("vision", limit=limit)], subject=VISION, takes=takes, jobs=0).start
    refused = found.refusal(used)
    assert refused is not None
    assert refused.message == message
    assert found.refusal(found.most - found.need) is None if found.need <= found.most else True


def test_a_limit_of_a_model_counts_that_model_alone() -> None:
    quota = make_quota("vision", limit={"models": {"A100": 2, "H100": 1}})
    of_both = [
        limits_of([quota], subject=VISION, takes=Takes(milli=1000, model=each)).start for each in ("A100", "H100")
    ]
    assert [limit.counter for (limit,) in of_both] == [("vision A100", "", "model"), ("vision H100", "", "model")]
    for other in ("V100", ""):
        assert limits_of([quota], subject=VISION, takes=Takes(milli=1000, model=other)).start == ()


def test_an_elastic_job_starts_with_the_workers_that_memory_allows() -> None:
    quota = make_quota("vision", limit={"memory": "240Gi"})
    job = replace(make_job("elastic", workers=4), least=1)
    takes = Takes(milli=4000, memory_mib=320 * GIB)
    gate = LimitGate({job.key: limits_of([quota], subject=VISION, takes=takes, workers=4, least=1)})
    assert (gate.refusal(job), gate.workers(job)) == (None, 3)


def test_a_job_that_starts_without_gpus_takes_no_memory() -> None:
    quota = make_quota("vision", limit={"memory": "0"})
    job = replace(make_job("cpu"), ask=Ask(gpu=None))
    gate = LimitGate({job.key: limits_of([quota], subject=VISION, takes=Takes(milli=1000, memory_mib=GIB))})
    assert gate.refusal(job) is None


# --- the tree ---------------------------------------------------------------------------------------------------


def test_memory_bounds_a_guarantee_with_its_gpus() -> None:
    loans = make_loans(
        make_quota("vision", guaranteed=8, memory="160Gi"),
        gpus=8,
        running={"x": ("vision", 1)},
        waiting={"fits": ("vision", 1), "large": ("vision", 2)},
    )
    assert (loans.owner("fits"), loans.owner("large")) == (0, None)


def test_with_memory_alone_the_number_of_gpus_does_not_matter() -> None:
    loans = make_loans(
        make_quota("vision", memory="160Gi"),
        gpus=8,
        running={},
        waiting={"small": ("vision", 8), "large": ("vision", 8)},
        gib={"small": 160, "large": 161},
    )
    assert (loans.owner("small"), loans.owner("large")) == (0, None)
    assert loans.tree.nodes[0].guaranteed == (None, 160 * GIB)


def test_a_job_beyond_any_named_resource_comes_back() -> None:
    """Of 4 GPUs and 640 GiB, the fifth GPU is borrowed although the memory would suffice for eight."""
    loans = make_loans(
        make_quota("vision", guaranteed=4, memory="640Gi"),
        make_quota("speech", guaranteed=4),
        gpus=8,
        running={f"v{at}": ("vision", 1) for at in range(5)},
        waiting={"owner": ("speech", 1)},
    )
    assert loans.borrows(loans.tree.by_name["vision"])
    assert loans.gives_back("v0", to="owner", owner=loans.tree.by_name["speech"])
    loans.end("v0")
    assert not loans.gives_back("v1", to="owner", owner=loans.tree.by_name["speech"])


def test_the_dominant_share_is_that_of_memory_where_that_is_larger() -> None:
    loans = make_loans(
        make_quota("vision", guaranteed=0, memory="0"),
        make_quota("speech", guaranteed=0, memory="0"),
        gpus=8,
        running={"v": ("vision", 1), "s": ("speech", 1)},
        waiting={},
        gib={"v": 160, "s": 80},
    )
    level = {name: loans.level(at) for name, at in loans.tree.by_name.items()}
    assert level == {"vision": pytest.approx(0.25), "speech": pytest.approx(0.125)}


def test_what_a_guarantee_does_not_name_counts_only_beyond_what_it_names() -> None:
    loans = make_loans(
        make_quota("vision", guaranteed=4),
        make_quota("speech", guaranteed=0, memory="80Gi"),
        gpus=8,
        running={"v": ("vision", 4)},
        waiting={},
    )
    assert loans.level(loans.tree.by_name["vision"]) == 0


@pytest.mark.parametrize(
    ("quotas", "message"),
    [
        pytest.param(
            (make_quota("vision", memory="960Gi"),),
            "GPUQuota vision: its guarantee of 960 GiB of device memory is scaled: 960 GiB are guaranteed in the "
            "cluster, the cluster has 640 GiB",
            id="more than the cluster has",
        ),
        pytest.param(
            (make_quota("vision", memory="160Gi", limit={"memory": "80Gi"}),),
            "GPUQuota vision: guarantees 160 GiB of device memory, above its limit of 80 GiB: 80 GiB are guaranteed "
            "until you raise the limit or lower the guarantee",
            id="more than the limit",
        ),
        pytest.param(
            (
                make_quota("research", memory="80Gi", parents_only=True),
                make_quota("vision", parent="research", memory="60Gi"),
                make_quota("speech", parent="research", memory="40Gi"),
            ),
            "GPUQuota research: guarantees 80 GiB of device memory, its children guarantee 100 GiB of device memory "
            "together (speech 40 GiB, vision 60 GiB): each of them gets its part until you raise it or lower them",
            id="children above their parent",
        ),
    ],
)
def test_contradictions_of_memory_are_named(quotas: tuple[object, ...], message: str) -> None:
    tree = make_tree(*quotas, gpus=8)  # type: ignore[arg-type]  # the parameters are quotas
    assert message in [finding.message for finding in tree.findings]


def test_a_parent_of_children_with_memory_alone_guarantees_memory_alone() -> None:
    tree = make_tree(
        make_quota("research", parents_only=True), make_quota("vision", parent="research", memory="80Gi"), gpus=8
    )
    assert tree.nodes[tree.by_name["research"]].guaranteed == (None, 80 * GIB)
    assert tree.resources == (GPUS, MEMORY)


def test_memory_is_read_in_the_units_of_kubernetes() -> None:
    assert [GPUAmounts(memory=text).memory_mib for text in ("640Gi", "1.5Ti", "512Mi", "1G", "0")] == [
        640 * GIB, 1536 * GIB, 512, 953, 0,
    ]  # fmt: skip
