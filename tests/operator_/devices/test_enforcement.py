"""What a running job is told of how its promise is enforced: the weakest of its nodes, never more than was tried."""

import pytest

from dovetail.api.builtin import Pod, PodSpec, PodStatus
from dovetail.api.gpujob import Mode
from dovetail.api.gpunode import Enforcement, GPUNode, GPUNodeStatus
from dovetail.api.meta import Condition, ObjectMeta
from dovetail_operator.devices.enforcement import Enforcements, condition_of, enforced

NOON = "2026-11-21T12:00:00Z"
MPS = Enforcement(mps=True)
NOTHING = Enforcement(reasons={"mps": "MPS is switched off (mps.enabled)", "turns": "no watchdog"})


def told(mode: Mode | None = "Fractional", **nodes: Enforcement | None) -> Condition | None:
    return condition_of(nodes, mode=mode, before=None, finished=False, now=NOON)


@pytest.mark.parametrize(
    ("mode", "found", "status", "word"),
    [
        ("Exclusive", None, "True", "WholeDevices"),
        ("Fractional", MPS, "True", "MPS"),
        ("Fractional", Enforcement(turns=True, time_slicing=True), "False", "None"),
        ("Fractional", None, "Unknown", "NotReported"),
        ("TimeShared", Enforcement(turns=True, time_slicing=True), "True", "Turns"),
        ("TimeShared", Enforcement(time_slicing=True, mps=True), "False", "TimeSlicing"),
        ("TimeShared", NOTHING, "False", "None"),
    ],
)
def test_each_mode_has_its_own_enforcement(mode: Mode, found: Enforcement | None, status: str, word: str) -> None:
    answer = enforced(mode, found=found)
    assert (answer.status, answer.why.reason) == (status, word)


def test_why_not_is_told_in_the_agent_s_words() -> None:
    condition = told(a=NOTHING)
    assert condition is not None
    assert condition.message == "Nothing holds the shares: MPS is switched off (mps.enabled) (on a)"


def test_the_weakest_node_speaks_for_all() -> None:
    condition = told(a=MPS, b=NOTHING, c=None, d=NOTHING)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "None")
    assert condition.message.endswith("(on b, d)")


def test_what_is_not_known_is_not_claimed() -> None:
    condition = told(a=MPS, b=None)
    assert condition is not None
    assert (condition.status, condition.reason) == ("Unknown", "NotReported")


def test_what_limits_it_is_told_beside() -> None:
    condition = told(a=Enforcement(mps=True, reasons={"mps": "limits below the largest bind only the willing"}))
    assert condition is not None
    assert condition.message == ("MPS holds compute and memory: limits below the largest bind only the willing (on a)")


def test_a_job_that_is_nowhere_or_asks_no_gpu_is_told_nothing() -> None:
    assert told() is None
    assert told(mode=None, a=MPS) is None


def test_a_job_that_is_over_keeps_what_it_was_told() -> None:
    before = told(a=MPS)
    assert condition_of({}, mode="Fractional", before=before, finished=True, now="later") == before


def test_a_report_is_news_once() -> None:
    known = Enforcements()
    report = GPUNode(metadata=ObjectMeta(name="a"), status=GPUNodeStatus(enforcement=MPS))
    assert known.changed(report)
    assert not known.changed(report)
    assert known.reports_for([pod("a"), pod("b"), pod("c", phase="Succeeded"), pod("")]) == {"a": MPS, "b": None}
    known.gone("a")
    assert known.reports_for([pod("a")]) == {"a": None}


def pod(node: str, *, phase: str = "Running") -> Pod:
    return Pod(
        metadata=ObjectMeta(name="train", namespace="ml", uid="u"),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase),
    )


def test_four_nodes_are_named_and_a_fifth_is_counted() -> None:
    four, five = (told(**dict.fromkeys("abcde"[:count], NOTHING)) for count in (4, 5))
    assert four is not None
    assert five is not None
    assert four.message.endswith("(on a, b, c, d)")
    assert five.message.endswith("(on a, b, c, d and 1 more)")


def test_of_two_nodes_that_enforce_nothing_the_one_without_any_sharing_speaks() -> None:
    condition = told("TimeShared", a=Enforcement(time_slicing=True), b=Enforcement())
    assert condition is not None
    assert (condition.reason, condition.message) == ("None", "Nothing shares the devices' time (on b)")


def test_a_node_where_it_is_unknown_is_weaker_than_one_that_enforces_and_stronger_than_one_that_does_not() -> None:
    found = [told(a=first, b=second) for first, second in ((None, MPS), (NOTHING, None), (MPS, MPS))]
    assert [each.status for each in found if each is not None] == ["Unknown", "False", "True"]


def test_a_report_that_enforces_something_else_is_news_on_its_own_node() -> None:
    known = Enforcements()
    reports = [("a", MPS), ("b", MPS), ("a", NOTHING), ("a", NOTHING), ("b", MPS)]
    news = [
        known.changed(GPUNode(metadata=ObjectMeta(name=name), status=GPUNodeStatus(enforcement=found)))
        for name, found in reports
    ]
    assert news == [True, True, True, False, False]
    known.gone("c")
    assert known.reports_for([pod("b"), pod("a"), pod("a", phase="Failed")]) == {"a": NOTHING, "b": MPS}


def test_a_job_that_runs_keeps_nothing_of_what_was_said_before() -> None:
    before = told(a=MPS)
    found = condition_of({"a": NOTHING}, mode="Fractional", before=before, finished=False, now=NOON)
    assert found is not None
    assert found.status == "False"
    assert condition_of({}, mode="Fractional", before=before, finished=False, now=NOON) is None
