"""What would have to change: each kind on a cluster where it alone helps, and the smallest of its kind."""

from dataclasses import replace

import msgspec
import pytest

from dovetail.answers.explain.question import Holder
from dovetail.api.builtin import ResourceSlice
from dovetail.api.reasons.remedies import HOLDING_JOB
from tests.core.engine.builders import hold_devices, make_ask, make_device
from tests.core.explain.builders import Cluster, kinds, make_node, texts, the_one


def full(*, nodes: str = "ab", gpus: int = 2) -> Cluster:
    """Every device of every node held, each by a claim of its own."""
    cluster = Cluster()
    for name in nodes:
        cluster.add(make_node(name), gpus=gpus)
        for index in range(gpus):
            hold_devices(cluster.ledger, name, index, key=f"{name}{index}")
    return cluster


def test_the_job_whose_end_frees_a_node_is_named() -> None:
    cluster = Cluster().add(make_node("a"))
    hold_devices(cluster.ledger, "a", 0, 1, key="uid")
    question = cluster.question(make_ask("1"), holders={"uid": Holder(called=HOLDING_JOB(job="17"))})
    assert texts(question) == ["frees on a when job 17 ends"]


def test_a_time_limit_says_when_at_the_latest() -> None:
    cluster = Cluster().add(make_node("a"))
    hold_devices(cluster.ledger, "a", 0, 1, key="uid")
    holders = {"uid": Holder(called=HOLDING_JOB(job="17"), ends_by="2026-11-21T17:00:00Z")}
    assert texts(cluster.question(make_ask("2"), holders=holders))[0].endswith(
        "when job 17 ends, at the latest 2026-11-21T17:00:00Z"
    )


def test_the_node_that_needs_the_fewest_departures_comes_first() -> None:
    cluster = full(nodes="a").add(make_node("b"))
    hold_devices(cluster.ledger, "b", 0, 1, key="both")
    found = texts(cluster.question(make_ask("2")))
    assert found[:2] == ["frees on b when pod both ends", "frees on a when pod a0, pod a1 end"]


def test_a_holder_that_need_not_go_is_not_named() -> None:
    cluster = Cluster().add(make_node("a"), gpus=1)
    for key, share in (("small", 200), ("large", 700)):
        hold_devices(cluster.ledger, "a", 0, key=key, share_milli=share, mode="Fractional")
    assert texts(cluster.question(make_ask("0.5")))[0] == "frees on a when pod large ends"


def test_claims_of_one_job_go_together() -> None:
    cluster = full(nodes="a")
    holders = {key: Holder(called=HOLDING_JOB(job="3")) for key in ("a0", "a1")}
    assert texts(cluster.question(make_ask("2"), holders=holders))[0] == "frees on a when job 3 ends"


def test_a_cordoned_node_is_to_be_uncordoned() -> None:
    cluster = Cluster().add(make_node("a", cordoned=True))
    assert texts(cluster.question(make_ask("2"))) == ["uncordon node a"]


def test_no_more_devices_are_uncordoned_than_needed() -> None:
    cluster = Cluster().add(make_node("a"), gpus=4, cordoned=True)
    assert the_one(cluster.question(make_ask("2")), "Uncordon").text == "uncordon a-0, a-1 on a"


@pytest.mark.parametrize(
    ("ready", "healthy", "text"),
    [
        (False, True, "node a would have to be ready"),
        (True, False, "a-0 on a would have to be healthy again (Xid79)"),
        (False, False, "node a and a-0 would have to be ready and healthy (Xid79)"),
    ],
)
def test_what_is_broken_is_to_be_repaired(ready: bool, healthy: bool, text: str) -> None:
    cluster = Cluster().add(make_node("a", ready=ready), gpus=1, healthy=healthy)
    assert texts(cluster.question(make_ask("1"))) == [text]


def test_a_node_that_a_dra_driver_serves_too_is_to_be_left_to_one_side() -> None:
    cluster = Cluster()
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a"}
    cluster.view.slice_changed(msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice))
    cluster.add(make_node("a"), gpus=1)
    served_twice = "both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs"
    assert texts(cluster.question(make_ask("1"))) == [
        f"node a would have to be served by one side alone: {served_twice}"
    ]
    assert texts(cluster.question(make_ask("1"), workers=2))[-1].startswith("add ")


def test_strangers_on_a_card_are_told_with_their_memory() -> None:
    cluster = Cluster().add(make_node("a"), gpus=1, foreign_mib=30_000)
    assert the_one(cluster.question(make_ask("1")), "Strangers").text == (
        "end the processes that Dovetail does not manage on a-0 on a (30000 MiB)"
    )


def test_the_largest_number_of_gpus_that_fits_is_told() -> None:
    cluster = full(nodes="a", gpus=4)
    cluster.ledger.release("a3")
    cluster.ledger.release("a2")
    change = the_one(cluster.question(make_ask("4")), "FewerGPUs")
    assert (change.request, change.node) == ("2", "a")
    assert change.text == "ask for at most 2 GPUs instead of 4: 2 fits on a"


def test_another_model_is_told_with_the_node_that_has_it() -> None:
    cluster = full(nodes="a").add(make_node("t"), model="T4")
    assert the_one(cluster.question(make_ask("1(V100)")), "OtherModel").text == (
        "ask for any model instead of V100: 1 fits on t"
    )


def test_any_model_is_told_to_whom_excludes_the_only_one() -> None:
    change = the_one(Cluster().add(make_node("t"), model="T4").question(make_ask("1(!T4)")), "OtherModel")
    assert change.text == "ask for any model instead of not T4: 1 fits on t"


def test_the_most_percent_of_memory_that_fits_is_told() -> None:
    cluster = Cluster().add(make_node("a"), gpus=1)
    hold_devices(cluster.ledger, "a", 0, key="uid", share_milli=100, memory_mib=20_000, mode="Fractional")
    change = the_one(cluster.question(make_ask("50%,0.5")), "LessMemory")
    # 0.8 of 32768 MiB, less 20000, are 6214 MiB; 18 % are 5898 and 19 % are 6225.
    assert change.text.startswith("ask for at most 18 % of the memory of each GPU instead of 50 %: 18%,0.5 fits on a")


def test_the_most_memory_that_fits_is_told() -> None:
    cluster = Cluster().add(make_node("a"), gpus=1)
    hold_devices(cluster.ledger, "a", 0, key="uid", share_milli=100, memory_mib=20_000, mode="Fractional")
    change = the_one(cluster.question(make_ask("8G,0.5")), "LessMemory")
    # 0.8 of 32768 MiB, less 20000.
    assert change.request == "6214M,0.5"
    assert change.text.startswith("ask for at most 6214 MiB of memory on each GPU instead of 8192 MiB")


def test_the_largest_size_that_fits_is_the_one_that_a_free_card_has() -> None:
    cluster = full(nodes="a").add(make_node("t"), model="T4")
    change = the_one(cluster.question(make_ask("1(>=32G)")), "SmallerGPU")
    assert change.text == "ask for GPUs of at least 16 GB instead of 32 GB: 1(>=16G) fits on t"


def test_the_largest_share_that_fits_is_told_also_to_whom_asks_a_whole_gpu() -> None:
    cluster = Cluster().add(make_node("a"), gpus=1)
    hold_devices(cluster.ledger, "a", 0, key="uid", share_milli=300, mode="Fractional")
    assert the_one(cluster.question(make_ask("0.9")), "SmallerShare").request == "0.7"
    assert the_one(cluster.question(make_ask("1")), "SmallerShare").request == "0.7"


def test_another_index_is_told() -> None:
    cluster = full(nodes="a")
    cluster.ledger.release("a1")
    assert the_one(cluster.question(make_ask("0.5@cuda:0")), "OtherIndex").text == (
        "ask for any device instead of cuda:0: 0.5 fits on a"
    )


def test_less_cpu_is_told_where_cpu_is_what_is_short() -> None:
    cluster = Cluster().add(make_node("a", cpu="8")).add(make_node("b", cpu="16"))
    assert the_one(cluster.question(make_ask("1", cpu_milli=32_000)), "LessHost").text == (
        "ask for at most 16000m of CPU instead of 32000m: fits on b"
    )


def test_a_constraint_that_alone_keeps_the_pod_off_is_told() -> None:
    cluster = full(nodes="a").add(make_node("t", taint=True))
    assert the_one(cluster.question(make_ask("1")), "Taint").text == (
        "tolerate the taint team=vision:NoSchedule: fits on t"
    )
    question = Cluster().add(make_node("a", pool="x")).question(make_ask("1"), nodeSelector={"pool": "y"})
    assert texts(question) == ["drop pool=y from the node selector: fits on a"]


def test_an_affinity_that_keeps_the_pod_off_is_told() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    question = Cluster().add(make_node("a")).question(make_ask("1"), affinity={"nodeAffinity": required})
    assert texts(question) == ["drop the required node affinity: fits on a"]


def test_a_gang_is_told_how_many_fit_and_what_one_more_waits_for() -> None:
    cluster = full(nodes="ab")
    for key in ("a0", "a1", "b0"):
        cluster.ledger.release(key)
    question = cluster.question(make_ask("1"), workers=4)
    assert texts(question)[:2] == [
        "for one more worker: frees on b when pod b1 ends",
        "ask for at most 3 workers instead of 4",
    ]


def test_a_gang_that_is_too_large_for_all_nodes_is_told_of_no_departure() -> None:
    cluster = full(nodes="ab")
    cluster.ledger.release("a0")
    question = cluster.question(
        make_ask("1"), workers=6, holders={"b1": Holder(called=HOLDING_JOB(job="17"), ends_by="2026-11-21T12:00:00Z")}
    )
    assert [text for text in texts(question) if "share" not in text] == [
        "ask for at most 1 worker instead of 6",
        "ask for at most 4 workers instead of 6 once others have left",
        "add 2 nodes with room for 1",
    ]


def test_a_gang_that_is_too_large_for_an_idle_cluster_is_told_once_how_many_fit() -> None:
    question = Cluster().add(make_node("a")).question(make_ask("1"), workers=3)
    found = [text for text in texts(question) if "share" not in text]
    assert found == ["ask for at most 2 workers instead of 3", "add a node with room for 1"]


def test_a_gang_that_lacks_a_node_which_people_can_mend_is_told_of_that_alone() -> None:
    cluster = Cluster().add(make_node("a")).add(make_node("b", cordoned=True))
    hold_devices(cluster.ledger, "a", 0, key="busy")
    found = texts(cluster.question(make_ask("1"), workers=4))
    assert "for one more worker: uncordon node b" in found
    assert not any("frees on" in text for text in found)


def test_where_nothing_helps_more_nodes_would() -> None:
    assert kinds(Cluster().add(make_node("none"), gpus=0).question(make_ask("1(H100)"))) == ["MoreNodes"]


def test_the_same_cluster_gives_the_same_changes() -> None:
    question = full(nodes="abcdef", gpus=4).question(make_ask("3"))
    assert texts(question) == texts(question)
    assert len(texts(question)) == 3


def full_cluster() -> Cluster:
    """Two nodes with two cards each, all of them taken."""
    cluster = Cluster().add(make_node("t"), model="T4").add(make_node("v"), model="V100")
    for name in "tv":
        hold_devices(cluster.ledger, name, 0, 1, memory_mib=16384)
    return cluster


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("16", "ask for at most 2 GPUs instead of 16: 2 fits on v once others have left"),
        ("1(H100)", "ask for any model instead of H100: 1 fits on t once others have left"),
        (
            "15G,0.5(T4)",
            "ask for at most 13107 MiB of memory on each GPU instead of 15360 MiB: 13107M,0.5(T4) fits on t",
        ),
        ("1@cuda:7", "ask for any device instead of cuda:7: 1 fits on t once others have left"),
    ],
)
def test_what_could_never_fit_is_told_what_could_though_not_now(text: str, said: str) -> None:
    told = texts(full_cluster().question(make_ask(text)))
    assert any(change.startswith(said) for change in told), told
    assert told[-1] == f"add a node with room for {text}"


def test_another_profile_is_named_the_smallest_that_is_large_enough() -> None:
    cluster = Cluster().add(make_node("a"), gpus=1, model="A100")
    instances = [
        replace(make_device("a", 1 + at, model="A100"), uuid=f"MIG-{at}", mig=profile)
        for at, profile in enumerate(("1g.10gb", "3g.40gb", "4g.40gb", "7g.80gb"))
    ]
    cluster.ledger.set_devices("a", devices=[*cluster.ledger.devices("a"), *instances])
    assert the_one(cluster.question(make_ask("2g.20gb")), "OtherProfile").text == (
        "ask for the MIG profile 3g.40gb instead of 2g.20gb: 3g.40gb fits on a"
    )
    assert the_one(cluster.question(make_ask("2x1g.10gb")), "FewerGPUs").text == (
        "ask for at most 1 instance of 1g.10gb instead of 2: 1g.10gb fits on a"
    )
