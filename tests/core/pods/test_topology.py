"""What a GPUJob says about the places of its workers."""

from typing import Any

import pytest

from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.engine.model.topology import DEFAULT_LEVELS, Spread, Topology
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import ask_of_job
from tests.operator_.builders import make_job

ZONE = "topology.kubernetes.io/zone"


def read(*, spec: dict[str, Any] | None = None, **said: Any) -> Topology | None:
    template = {"spec": {"containers": [{"name": "main"}], **(spec or {})}}
    job = make_job("x", **({"workers": 4, "template": template} | said))
    return ask_of_job(job, ranking=DEFAULT_RANKING).topology


def test_the_rules_are_those_of_the_spec() -> None:
    groups = {"size": 2, "required": "nvlink"}
    found = read(topology={"required": "zone", "preferred": "rack", "subGroups": groups})
    assert found == Topology(
        levels=DEFAULT_LEVELS, required="zone", preferred="rack", group_size=2, group_level="nvlink"
    )


def test_a_gang_without_rules_has_levels_for_the_order_of_its_workers() -> None:
    found = read()
    assert found == Topology(levels=DEFAULT_LEVELS)
    assert not found.is_bound


def test_a_single_worker_has_no_topology() -> None:
    assert read(workers=1, topology={"required": "rack"}) is None


@pytest.mark.parametrize(
    ("topology", "told"),
    [
        ({"required": "rak"}, 'topology.required "rak": no such level is configured (topology_levels): the levels are'),
        ({"preferred": "row"}, "the levels are zone, block, rack, nvlink, host"),
        ({"subGroups": {"size": 2, "required": "row"}}, 'topology.subGroups.required "row": no such level'),
        ({"required": "rack", "preferred": "zone"}, "must be narrower than required, which is rack"),
        ({"required": "host", "subGroups": {"size": 2, "required": "host"}}, "must be narrower than required"),
    ],
)
def test_levels_that_are_not_configured_or_too_wide_are_refused(topology: dict[str, Any], told: str) -> None:
    for workers in (1, 4):
        with pytest.raises(RequestError) as refused:
            read(workers=workers, topology=topology)
        assert told in str(refused.value)


def test_without_configured_levels_the_message_says_so() -> None:
    with pytest.raises(RequestError, match="no level is configured"):
        ask_of_job(make_job("x", workers=2, topology={"required": "rack"}), ranking=DEFAULT_RANKING, levels=())


def spread(**said: Any) -> dict[str, Any]:
    own = {"labelSelector": {"matchLabels": {"dovetail.dev/job": "x"}}}
    constraint = {"topologyKey": ZONE, "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", **own}
    return {"topologySpreadConstraints": [constraint | said]}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, (Spread(label=ZONE, max_skew=2),)),
        ({"minDomains": 3}, (Spread(label=ZONE, max_skew=2, min_domains=3),)),
        ({"whenUnsatisfiable": "ScheduleAnyway"}, ()),
        ({"labelSelector": {"matchLabels": {"app": "another"}}}, ()),
        ({"labelSelector": None}, ()),
        ({"matchLabelKeys": ["batch.kubernetes.io/job-completion-index"]}, ()),
    ],
)
def test_spread_constraints_count_where_they_select_the_jobs_own_pods(
    said: dict[str, Any], found: tuple[Spread, ...]
) -> None:
    topology = read(spec=spread(**said))
    assert topology is not None
    assert topology.spreads == found


def test_anti_affinity_over_another_label_than_the_host_is_planned_for() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"dovetail.dev/job": "x"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    topology = read(spec={"affinity": apart})
    assert topology is not None
    assert topology.spreads == (Spread(label=ZONE, most=1),)
