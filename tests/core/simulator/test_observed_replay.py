"""Pods of a cluster, replayed in the order of their own scheduler and by Dovetail's queue."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.answers.observe import Forecast
from dovetail.cluster.observed import PlacedPod
from dovetail.formats.timestamps import moment, timestamp
from dovetail.simulator.observed_replay import forecast
from tests.core.query.explain.observe.builders import CREATED, make_kai_group, make_node, make_pod

START = moment(CREATED)


def at(seconds: float) -> str:
    return timestamp(START + timedelta(seconds=seconds))


def ran(name: str, *, came: float, bound: float | None = None, ended: float | None = None, **more: Any) -> PlacedPod:
    """A pod with its own times, in seconds."""
    on = more.pop("on", "n1") if bound is not None else ""
    pod = make_pod(name, on=on, phase="Succeeded" if ended is not None else "", **more)
    scheduled = [] if bound is None else [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(bound)}]
    over = (
        [] if ended is None else [{"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": at(ended)}}}]
    )
    raw = msgspec.to_builtins(pod)
    raw["metadata"]["creationTimestamp"] = at(came)
    raw["status"] |= {"conditions": scheduled, "containerStatuses": over}
    return msgspec.convert(raw, PlacedPod)


def of(pods: list[PlacedPod], *, gpus: int = 4, until: float = 1000.0, **more: Any) -> Forecast:
    found = forecast([make_node("n1", gpus=gpus, **more)], pods=pods, now=START + timedelta(seconds=until))
    assert found is not None
    return found


def test_a_replay_meets_the_starts_of_pods_that_waited_for_each_other() -> None:
    found = of(
        [
            ran("a", came=0, bound=0, ended=100, gpus=4),
            ran("b", came=10, bound=101, ended=160, gpus=3),
            ran("c", came=20, bound=101, ended=150, gpus=1),
            ran("d", came=30, bound=151, gpus=1),
        ]
    )
    assert (found.reproduced, found.trusted) == (1.0, True)
    assert {each.name: each.replayed for each in found.items} == {"a": 0, "b": 90, "c": 80, "d": 119.0}


def test_a_start_that_room_does_not_explain_is_not_met_and_the_forecast_not_trusted() -> None:
    found = of([ran("a", came=0, bound=0, ended=100), ran("late", came=0, bound=500, ended=600)])
    assert (found.reproduced, found.trusted) == (0.5, False)


def test_small_pods_that_overtake_a_large_one_wait_for_it_under_dovetail() -> None:
    pods = [
        ran("first", came=0, bound=0, ended=100, gpus=2, activeDeadlineSeconds=100),
        ran("large", came=1, bound=400, ended=500, gpus=4, activeDeadlineSeconds=100),
        *(
            ran(f"s{k}", came=2 + 90 * k, bound=2 + 90 * k, ended=102 + 90 * k, gpus=2, activeDeadlineSeconds=100)
            for k in range(4)
        ),
    ]
    found = of(pods)
    waits = {each.name: (each.replayed, each.under_dovetail) for each in found.items}
    assert waits["large"] == (371.0, 99.0)
    assert waits["s0"] == (0.0, 198.0)
    assert (found.items[0].name, found.sooner, found.later) == ("large", 1, 4)


def test_a_pod_that_still_waits_is_met_where_the_replay_does_not_start_it() -> None:
    found = of([ran("a", came=0, bound=0, gpus=3), ran("waits", came=5, gpus=2)])
    (waits,) = [each for each in found.items if each.name == "waits"]
    assert (waits.started, waits.waited, waits.replayed, found.reproduced) == (False, 995.0, None, 1.0)


def test_devices_that_are_free_while_a_pod_waits_are_summed_up() -> None:
    found = of([ran("a", came=0, bound=0, gpus=3), ran("waits", came=0, gpus=2)], until=3600)
    assert found.own_order.idle_device_hours == 1.0


@pytest.mark.parametrize(
    ("spec", "starts"), [({"nodeSelector": {"pool": "b"}}, False), ({"nodeSelector": {"pool": "a"}}, True)]
)
def test_a_pod_starts_only_on_nodes_that_admit_it(spec: dict[str, Any], starts: bool) -> None:
    found = of([ran("a", came=0, **spec)], labels={"pool": "a"})
    assert (found.items[0].replayed is not None) == starts


def test_a_cordon_that_came_after_pods_had_started_there_does_not_count() -> None:
    found = of([ran("a", came=0, bound=0)], cordoned=True)
    assert found.reproduced == 1.0
    assert found.notes == ["Replayed as open, because pods of the report started there before the cordon: n1"]


def test_what_the_replay_does_not_know_is_counted_in_the_notes() -> None:
    gated = ran("g", came=0, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    other = ran("v", came=0, bound=0)
    parts = make_kai_group("k", on="n1", parts=["0.5"])[1:]
    assert of([gated, other, *parts]).notes == [
        "1 pods ask in words that this replay does not know, such as parts of GPUs",
        "1 pods are left out: a gate keeps schedulers off them",
    ]


def test_a_pod_that_its_scheduler_never_bound_though_there_is_room_is_not_met() -> None:
    assert of([ran("a", came=0, bound=0), ran("quota", came=5)]).reproduced == 0.5


def test_the_replay_keeps_to_the_nodes_on_which_pods_ran() -> None:
    nodes = [make_node("n1", gpus=4), make_node("n2", gpus=4)]
    pods = [ran("a", came=0, bound=0, ended=100, gpus=4), ran("b", came=10, bound=101, gpus=4)]
    found = forecast(nodes, pods=pods, now=START + timedelta(seconds=500))
    assert found is not None
    waits = {each.name: (each.replayed, each.under_dovetail) for each in found.items}
    assert waits["b"] == (90.0, 0.0)


def test_a_cluster_without_pods_of_a_plugin_has_no_forecast() -> None:
    assert forecast([make_node("n1")], pods=[make_pod("a", gpus=None)], now=START) is None
