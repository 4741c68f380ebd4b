"""Advance reservations of quotas for one cycle: which are due, what their own jobs already use, and what stays free."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.backfill.advance_reservation import Windows
from dovetail.queue.limits.quota_reservations import windows_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Leaving
from tests.core.builders import make_gpunode
from tests.core.engine.builders import hold_devices

NOW = datetime(2026, 1, 8, 12, tzinfo=UTC)
HOUR = 3600.0
COURSE = Subject(namespace="course", user="ada")


def at(hours: float) -> str:
    return (NOW + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def window(name: str = "exam", *, start: float = -1, end: float = 1, gpus: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": name, "startTime": at(start), "endTime": at(end), "gpus": gpus, **more}


class Scene:
    """Nodes `a` and `b` with four GPUs each, `b` in pool `big`, and quota `q` of namespace `course`."""

    def __init__(self, *windows: dict[str, Any]) -> None:
        self.view = ClusterView(ledger=Ledger())
        for name in ("a", "b"):
            labels = {names.LABEL_MANAGED: "true"} | ({names.LABEL_POOL: "big"} if name == "b" else {})
            ready = {
                "allocatable": {"cpu": "64", "memory": "256Gi"},
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            node = {"metadata": {"name": name, "labels": labels}, "status": ready}
            self.view.node_changed(msgspec.convert(node, Node))
            report: GPUNode = make_gpunode(name, gpus=4)
            self.view.gpunode_changed(report)
        self.quotas = Quotas()
        self.keep("q", *windows)
        self.counted: list[Counted] = []
        self.leaving: list[Leaving] = []

    def keep(self, name: str, *windows: dict[str, Any], namespace: str = "course") -> None:
        spec = {"namespaces": [namespace], "advanceReservations": list(windows)}
        self.quotas.update(msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota))

    def runs(
        self, uid: str, *, node: str, gpus: int, subject: Subject = COURSE, end_seconds: float = 9 * HOUR,
        assumed: bool = False,
    ) -> None:  # fmt: skip
        """A job with one claim on the node, which ends by then."""
        hold_devices(self.view.ledger, node, *range(gpus), key=f"{uid}/0")
        self.counted.append(Counted(uid=uid, subject=subject, milli=gpus * 1000))
        self.leaving.append(Leaving(at_seconds=end_seconds, key=f"{uid}/0", job=uid, assumed=assumed))

    def windows(self) -> Windows:
        found = windows_of(
            self.quotas,
            counted=self.counted,
            view=self.view,
            ledger=self.view.ledger,
            leaving=self.leaving,
            now=NOW,
            gate=self.quotas.gate(self.counted, capacity=self.quotas.capacity(self.view.ledger)),
        )
        self.quotas.kept, self.quotas.reserves = found.kept, found.ready
        return found

    def wanted(self) -> dict[str, int]:
        """How many GPUs are still to be kept, by name."""
        return {each.name: each.gpus for each in self.windows().wanted}


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        pytest.param(window(), (0, HOUR), id="begun"),
        pytest.param(window(start=1, end=2), (HOUR, 2 * HOUR), id="to come"),
        pytest.param(window(start=0, end=2), (0, 2 * HOUR), id="beginning now"),
        pytest.param(window(start=-2, end=0), None, id="ending now"),
        pytest.param(window(start=-2, end=-1), None, id="over"),
    ],
)
def test_a_reservation_is_wanted_until_it_is_over(said: dict[str, Any], seconds: tuple[float, float] | None) -> None:
    found = [(each.at_seconds, each.until_seconds) for each in Scene(said).windows().wanted]
    assert found == ([] if seconds is None else [seconds])


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (window(), "2026-01-08T13:00:00Z"),
        (window(start=1, end=2), "2026-01-08T14:00:00Z from 2026-01-08T13:00:00Z on"),
    ],
)
def test_a_reservation_says_until_when_and_from_when_it_holds(said: dict[str, Any], text: str) -> None:
    (found,) = Scene(said).windows().wanted
    assert (found.until, found.quota, found.nodes) == (text, "q", None)
    assert found.resources == ("", "nvidia.com/gpu")


def test_a_reservation_of_a_pool_is_for_its_nodes() -> None:
    (found,) = Scene(window(pool="big")).windows().wanted
    assert found.nodes == ["b"]


@pytest.mark.parametrize(
    ("happens", "left"),
    [
        pytest.param({"gpus": 1}, 2, id="a part"),
        pytest.param({"gpus": 3}, None, id="all of it"),
        pytest.param({"gpus": 4}, None, id="more than that"),
        pytest.param({"gpus": 3, "subject": Subject(namespace="other", user="ada")}, 3, id="another namespace's"),
    ],
)
def test_what_its_own_jobs_hold_is_not_kept_as_well(happens: dict[str, Any], left: int | None) -> None:
    scene = Scene(window(gpus=3))
    scene.runs("x", node="a", **happens)
    assert scene.wanted().get("exam") == left


@pytest.mark.parametrize(
    ("end_seconds", "assumed", "left"), [(HOUR, False, 2), (HOUR + 1, False, None), (HOUR, True, None)]
)
def test_a_job_that_ends_before_a_reservation_begins_does_not_count_towards_it(
    end_seconds: float, assumed: bool, left: int | None
) -> None:
    scene = Scene(window(start=1, end=2))
    scene.runs("x", node="a", gpus=2, end_seconds=end_seconds, assumed=assumed)
    assert scene.wanted().get("exam") == left


def test_a_job_whose_claims_are_not_known_counts_with_all_that_it_requests_in_any_pool() -> None:
    scene = Scene(window(pool="big", gpus=3))
    scene.counted.append(Counted(uid="x", subject=COURSE, milli=2000))
    assert scene.wanted() == {"exam": 1}


@pytest.mark.parametrize("changed", [{"queued": True}, {"end": NOW}])
def test_a_job_that_waits_or_has_ended_fills_no_reservation(changed: dict[str, Any]) -> None:
    scene = Scene(window())
    scene.counted.append(Counted(uid="x", subject=COURSE, milli=2000, **changed))
    assert scene.wanted() == {"exam": 2}


def test_half_a_gpu_leaves_a_whole_one_to_be_kept() -> None:
    scene = Scene(window())
    scene.counted.append(Counted(uid="x", subject=COURSE, milli=1500))
    assert scene.wanted() == {"exam": 1}


def test_a_use_counts_towards_one_of_the_reservations_that_overlap_the_pool_first() -> None:
    scene = Scene(window("any", gpus=2), window("pool", gpus=1, pool="big"), window("later", start=1, end=2, gpus=3))
    scene.runs("x", node="b", gpus=2)
    assert scene.wanted() == {"any": 1, "later": 1}


def test_use_outside_a_pool_does_not_fill_its_reservation() -> None:
    scene = Scene(window(pool="big"))
    scene.runs("x", node="a", gpus=2)
    assert scene.wanted() == {"exam": 2}


def test_a_second_use_fills_what_the_first_one_leaves() -> None:
    scene = Scene(window(gpus=3), window("two", gpus=2))
    scene.runs("x", node="a", gpus=2)
    scene.runs("y", node="b", gpus=2)
    assert scene.wanted() == {"two": 1}


def test_the_reservations_of_a_job_s_own_quotas_do_not_block_it() -> None:
    scene = Scene(window())
    scene.keep("r", window("other"), namespace="other")
    scene.counted.append(Counted(uid="x", subject=COURSE, milli=1000, queued=True))
    assert scene.windows().quotas_of == {"x": frozenset({"q"})}


def test_what_is_kept_from_pods_now_is_by_quota_and_node_and_goes_with_the_reservation() -> None:
    scene = Scene(window(pool="big"))
    scene.keep("r", window("later", start=1, end=2, gpus=1), namespace="other")
    scene.windows()
    kept = {quota: {each.name: each.keeps for each in found} for quota, found in scene.quotas.kept.items()}
    assert kept == {"q": {"b": ["2"]}, "r": {"a": ["1"]}}
    scene.keep("q")
    scene.keep("r", namespace="other")
    assert scene.windows() == Windows()
    assert scene.quotas.kept == {}
