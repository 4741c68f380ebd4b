from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dovetail.api.gpunode import GPUNodeStatus
from dovetail.cluster.staleness import Freshness
from dovetail.cluster.view import ClusterView
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from tests.core.builders import make_gpunode, make_node
from tests.core.engine.builders import make_ask

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = "measurements of node a are more than 11 min old: promises alone count"


class Cluster:
    """One node on whose two cards strangers hold 20,000 MiB, and clocks that the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall = NOON
        self.ledger = Ledger()
        freshness = Freshness(max_age_seconds=660, clock=lambda: self.seconds, wall=lambda: self.wall)
        self.view = ClusterView(ledger=self.ledger, freshness=freshness)
        self.view.node_changed(make_node("a"))

    def report(self, observed_at: datetime | str | None, *, cordoned: tuple[str, ...] = (), used: float = 0.0) -> None:
        said = observed_at.isoformat() if isinstance(observed_at, datetime) else observed_at
        self.view.gpunode_changed(
            make_gpunode("a", observed_at=said, cordoned=cordoned, foreignMiB=20000, utilization=used)
        )

    def after(self, seconds: float) -> list[str]:
        self.seconds += seconds
        return self.view.time_passes()

    @property
    def counts(self) -> bool:
        """Whether the strangers' memory keeps a pod off."""
        fits = isinstance(check(self.ledger, ask=make_ask("8G,0.5"), node="a", key="pod"), Fit)
        assert fits == bool(self.ledger.unmeasured_reason("a"))
        return not fits


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_report_counts_until_it_is_too_old(cluster: Cluster) -> None:
    cluster.report(NOON)
    assert cluster.after(659) == []
    assert cluster.counts
    assert cluster.after(1) == [OLD]
    assert not cluster.counts
    assert cluster.after(1) == []


def test_the_next_report_counts_again_and_grows_old_in_its_turn(cluster: Cluster) -> None:
    cluster.report(NOON)
    cluster.after(700)
    cluster.report(NOON + timedelta(seconds=700))
    assert cluster.counts
    assert cluster.after(400) == []
    assert cluster.after(400) == [OLD]


def test_each_report_begins_the_time_anew(cluster: Cluster) -> None:
    cluster.report(NOON)
    cluster.after(500)
    cluster.report(NOON + timedelta(seconds=500))
    assert cluster.after(500) == []
    assert cluster.counts


def test_a_cordon_is_no_report(cluster: Cluster) -> None:
    cluster.report(NOON)
    cluster.after(700)
    cluster.report(NOON, cordoned=("a-1",))
    assert not cluster.counts


def test_what_was_old_when_it_was_first_seen_does_not_count(cluster: Cluster) -> None:
    cluster.report(NOON - timedelta(seconds=660))
    assert not cluster.counts


def test_the_age_at_first_sight_is_kept(cluster: Cluster) -> None:
    cluster.report(NOON - timedelta(seconds=600))
    assert cluster.counts
    assert cluster.after(60) == [OLD]


def test_an_agent_whose_clock_is_ahead_is_believed_for_one_bound(cluster: Cluster) -> None:
    cluster.report(NOON + timedelta(hours=5))
    assert cluster.counts
    assert cluster.after(660) == [OLD]


def test_an_agent_whose_clock_is_behind_counts_from_its_next_report(cluster: Cluster) -> None:
    cluster.report(NOON - timedelta(hours=5))
    assert not cluster.counts
    cluster.report(NOON - timedelta(hours=5) + timedelta(seconds=300))
    assert cluster.counts


def test_a_clock_that_stands_still_is_no_silence_while_figures_move(cluster: Cluster) -> None:
    cluster.report(NOON, used=0.1)
    cluster.after(600)
    cluster.report(NOON, used=0.2)
    assert cluster.after(600) == []


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(days=400)])
def test_our_own_clock_may_jump(cluster: Cluster, jump: timedelta) -> None:
    cluster.report(NOON)
    cluster.wall += jump
    cluster.report(NOON + timedelta(seconds=30))
    assert cluster.after(600) == []
    assert cluster.counts
    assert cluster.after(100) == [OLD]


@pytest.mark.parametrize("said", [None, "at noon", "2026-01-01T12:00:00"])
def test_without_a_time_nothing_was_measured_at_first(cluster: Cluster, said: str | None) -> None:
    cluster.report(said)
    assert not cluster.counts


def test_a_node_that_left_and_returns_is_seen_for_the_first_time(cluster: Cluster) -> None:
    cluster.report(NOON)
    cluster.view.gpunode_gone("a")
    assert cluster.after(700) == []
    cluster.wall += timedelta(seconds=700)
    cluster.report(NOON)
    assert not cluster.counts


def test_a_node_that_returns_with_an_older_report_grows_old_sooner(cluster: Cluster) -> None:
    cluster.report(NOON)
    cluster.view.gpunode_gone("a")
    cluster.report(NOON - timedelta(seconds=600))
    assert cluster.after(60) == [OLD]


def test_a_node_that_reports_often_is_looked_at_once(cluster: Cluster) -> None:
    for second in range(0, 2000, 10):
        cluster.report(NOON + timedelta(seconds=second))
        assert cluster.after(10) == []
    assert cluster.after(650) == [OLD]
    assert cluster.after(5000) == []


@given(start=st.floats(0, 1e9), bound=st.floats(1, 1e6))
def test_it_ends_at_every_moment(start: float, bound: float) -> None:
    now = start
    freshness = Freshness(max_age_seconds=bound, clock=lambda: now, wall=lambda: NOON)
    freshness.report("a", status=GPUNodeStatus(observed_at=NOON.isoformat()))
    now = start + bound
    assert freshness.grown_old().keys() == {"a"}


def test_loads_settle_as_time_passes(cluster: Cluster) -> None:
    cluster.report(NOON, used=0.0)
    cluster.report(NOON, used=1.0)
    assert cluster.ledger.columns(["a"]).utilization[0, 0] == 0.0
    cluster.after(600)
    assert cluster.ledger.columns(["a"]).utilization[0, 0] > 0.9


def freshness(bound: float, now: list[float]) -> Freshness:
    return Freshness(max_age_seconds=bound, clock=lambda: now[0], wall=lambda: NOON)


@pytest.mark.parametrize(("bound", "text"), [(119, "119 s"), (120, "2 min"), (660, "11 min")])
def test_a_bound_is_named_in_seconds_below_two_minutes(bound: int, text: str) -> None:
    now = [0.0]
    found = freshness(bound, now)
    found.report("a", status=GPUNodeStatus(observed_at=NOON.isoformat()))
    now[0] = bound
    assert found.grown_old() == {"a": f"measurements of node a are more than {text} old: promises alone count"}


def test_several_nodes_grow_old_each_in_its_time() -> None:
    now = [0.0]
    found = freshness(100, now)
    for at, name in enumerate("abc"):
        now[0] = 10.0 * at
        found.report(name, status=GPUNodeStatus(observed_at=NOON.isoformat()))
    # a is gone, b has reported again, c grows old.
    found.forget("a")
    now[0] = 60.0
    found.report("b", status=GPUNodeStatus(observed_at=(NOON + timedelta(seconds=60)).isoformat()))
    now[0] = 120.0
    assert found.grown_old().keys() == {"c"}
    now[0] = 159.0
    assert found.grown_old() == {}
    now[0] = 160.0
    assert found.grown_old().keys() == {"b"}


def test_a_report_that_is_old_already_is_said_once_and_not_after_each_time_that_it_is_read() -> None:
    now = [0.0]
    found = freshness(100, now)
    old = GPUNodeStatus(observed_at=(NOON - timedelta(seconds=500)).isoformat())
    for _ in range(3):
        assert found.report("a", status=old).startswith("measurements of node a are more than")
        assert found.grown_old() == {}
    # It reports again, and that grows old in its time.
    found.report("a", status=GPUNodeStatus(observed_at=NOON.isoformat()))
    now[0] = 100.0
    assert found.grown_old().keys() == {"a"}
    found.report("a", status=GPUNodeStatus(observed_at=NOON.isoformat()))
    assert found.grown_old() == {}


def test_a_report_without_a_time_says_that_nothing_was_measured() -> None:
    found = freshness(100, [0.0])
    assert found.report("a", status=GPUNodeStatus()) == "nothing measured on node a yet: promises alone count"
