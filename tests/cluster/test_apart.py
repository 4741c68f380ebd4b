"""Gangs whose workers take a node each, on a real kube-scheduler; and a template that is no pod's beside them."""

from typing import Any

import pytest

from tests.cluster.jobs import Jobs, manifest

pytestmark = pytest.mark.cluster


def template(**spec: Any) -> dict[str, Any]:
    """The template of a job of the sandbox, with more in its pods' spec."""
    found: dict[str, Any] = manifest("x")["spec"]["template"]
    return {**found, "spec": {**found["spec"], **spec}}


def away_from(job: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"dovetail.dev/job": job}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def test_workers_that_keep_away_from_each_other_start_together_or_wait_together(jobs: Jobs) -> None:
    await jobs.submit("odd", template=template(affinity=["no affinity"]))
    await jobs.submit("pair", gpu="1(T4)", workers=2, template=template(affinity=away_from("pair")))
    status = await jobs.until("pair", lambda status: status.workers_ready == 2)
    assert sorted(status.nodes) == ["t4-0", "t4-1"]
    await jobs.submit("one", gpu="1(T4)")
    await jobs.phase("Running", "one")
    await jobs.submit("late", gpu="1(T4)", workers=2, template=template(affinity=away_from("late")))
    told = await jobs.until("late", lambda status: status.reason == "Resources")
    assert told.message == "Need 2 GPUs, only 1 available"
    assert await jobs.pods("late") == []
    told = await jobs.until("odd", lambda status: status.reason == "Invalid")
    assert "spec.template.spec.affinity" in told.message


async def test_a_gang_of_which_kube_scheduler_refuses_a_part_is_taken_back_whole_and_says_why(jobs: Jobs) -> None:
    """Four V100s are free on one node and two on the other, beside a pod that the workers keep away from."""
    await jobs.submit("large", gpu="2(V100)")
    await jobs.phase("Running", "large")
    await jobs.submit("shy", gpu="1(V100)", workers=6, template=template(affinity=away_from("large")))
    told = await jobs.until("shy", lambda status: status.message.startswith("Gets a new plan at "))
    assert (told.phase, told.reason, told.placement) == ("Queued", "Resources", None)
    assert "didn't match pod anti-affinity rules" in told.message


async def test_a_gang_that_its_template_spreads_is_planned_so_and_never_started_in_part(jobs: Jobs) -> None:
    """Four V100s are free on one node and two on the other: six workers fit, but not evenly."""
    await jobs.submit("large", gpu="2(V100)")
    await jobs.phase("Running", "large")
    await jobs.submit(
        "uneven", gpu="1(V100)", workers=6, template=template(topologySpreadConstraints=[evenly("uneven")])
    )
    told = await jobs.until("uneven", lambda status: status.reason == "Fragmentation")
    assert told.message == "Need 6 GPUs, but the number of workers on each kubernetes.io/hostname may differ by 1"
    # An older job that waits has a reservation.
    await jobs.delete("uneven")
    await jobs.submit("even", gpu="1(V100)", workers=5, template=template(topologySpreadConstraints=[evenly("even")]))
    status = await jobs.until("even", lambda status: status.workers_ready == 5)
    assert sorted(status.nodes) == ["v100-0", "v100-1"]


def evenly(job: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"dovetail.dev/job": job}},
    }
