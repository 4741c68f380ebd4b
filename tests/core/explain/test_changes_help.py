"""On arbitrary small clusters: what is told to help does help, and a step more than what is told does not."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.answers.explain.answer import Answer
from dovetail.answers.explain.nodes import answer
from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.questions import ExplainedChange
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.columns import MODE_CODES
from dovetail.gpu.request import GPURequest, parse
from tests.core.engine.builders import hold_devices
from tests.core.explain.builders import Cluster, make_node

LEAST = {
    "FewerGPUs": "count",
    "SmallerShare": "share_milli",
    "LessMemory": "memory_mib",
    "SmallerGPU": "min_nominal_gb",
}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to three nodes with up to three devices each, some of them promised in part or whole, cordoned or ill."""
    cluster = Cluster()
    for name in "abc"[: draw(st.integers(1, 3))]:
        gpus = draw(st.integers(1, 3))
        cordoned, healthy = draw(st.sampled_from([(False, True), (False, True), (True, True), (False, False)]))
        cluster.add(make_node(name), gpus=gpus, cordoned=cordoned, healthy=healthy)
        for index in range(gpus):
            mode = draw(st.sampled_from([None, *MODE_CODES]))
            for tenant in range(0 if mode is None else 1 if mode == "Exclusive" else draw(st.integers(1, 2))):
                share = 1000 if mode != "Fractional" else draw(st.sampled_from([100, 300, 500]))
                memory = draw(st.sampled_from([1000, 8000, 12000]))
                hold_devices(
                    cluster.ledger, name, index, key=f"{name}{index}{tenant}", share_milli=share, memory_mib=memory,
                    mode=mode,
                )  # fmt: skip
    return cluster


@st.composite
def questions(draw: st.DrawFn) -> Question:
    request = parse(
        draw(
            st.sampled_from(
                [
                    "1",
                    "2",
                    "3",
                    "0.2",
                    "0.6",
                    "8G,0.5",
                    "20G,0.3",
                    "2x4G,0.5",
                    "60%,0.5",
                    "2x30%,0.2",
                    "1(!V100)",
                    "1(V100)",
                    "1(>=64G)",
                ]
            )
        )
    )
    whole = request.whole and not request.names_memory
    mode = draw(st.sampled_from(["Exclusive"] if whole else ["Fractional"]))
    return draw(clusters()).question(Ask(gpu=request, mode=mode, policy="Pack"))


def is_later(change: ExplainedChange) -> bool:
    """Whether it helps only once other jobs have left."""
    return change.text.endswith(" once others have left")


def told(question: Question, *kinds: str) -> tuple[Answer, list[ExplainedChange]]:
    found = answer(question)
    return found, [change for change in found.changes if change.kind in kinds and not is_later(change)]


def with_request(question: Question, gpu: GPURequest) -> Question:
    mode = "Fractional" if not gpu.whole else question.ask.mode
    return replace(question, ask=replace(question.ask, gpu=gpu, mode=mode))


@given(questions())
@settings(max_examples=60, deadline=None)
def test_a_smaller_request_that_is_told_fits_and_the_next_larger_one_does_not(question: Question) -> None:
    _, changes = told(question, *LEAST)
    for change in changes:
        less = parse(change.request)
        assert answer(with_request(question, less)).fits
        by_percent = change.kind == "LessMemory" and less.memory_percent is not None
        field = "memory_percent" if by_percent else LEAST[change.kind]
        more = replace(less, **{field: getattr(less, field) + 1})
        assert not answer(with_request(question, more)).fits


@given(questions())
@settings(max_examples=60, deadline=None)
def test_departures_that_are_told_make_room_and_none_of_them_could_stay(question: Question) -> None:
    _, changes = told(question, "Departure")
    for change in changes:
        if change.text.partition(" when ")[2].count(",") == 3 and " more end" in change.text:
            continue  # of more than four only the first are named
        keys = change.text.removeprefix(f"frees on {change.node} when ").removesuffix(" end").removesuffix(" ends")
        gone = [key.removeprefix("pod ") for key in keys.split(", ")]
        assert fits_without(question, gone, node=change.node)
        assert not any(fits_without(question, [key for key in gone if key != one], node=change.node) for one in gone)


def fits_without(question: Question, keys: list[str], *, node: str) -> bool:
    ledger = question.view.ledger.copy()
    for key in keys:
        assert ledger.release(key) is not None
    return isinstance(check(ledger, ask=question.ask, node=node, key=KEY), Fit)


@given(questions())
@settings(max_examples=60, deadline=None)
def test_whatever_fits_has_nothing_to_change_and_whatever_does_not_has_something(question: Question) -> None:
    found = answer(question)
    assert found.fits == bool(found.fitting)
    assert found.fits == (not found.changes)
    assert len({node.node for node in found.nodes}) == len(found.nodes)


@pytest.mark.parametrize("text", ["1", "0.6"])
def test_the_examples_reach_what_they_are_for(text: str) -> None:
    cluster = Cluster().add(make_node("a"), gpus=1)
    hold_devices(cluster.ledger, "a", 0, key="a00", share_milli=500, memory_mib=1000, mode="Fractional")
    mode = "Exclusive" if text == "1" else "Fractional"
    _, changes = told(cluster.question(Ask(gpu=parse(text), mode=mode)), "Departure", "SmallerShare")  # type: ignore[arg-type]
    assert [change.kind for change in changes] == ["Departure", "SmallerShare"]


@settings(deadline=None)
@given(questions())
def test_what_is_told_for_later_fits_once_nobody_else_is_there(question: Question) -> None:
    later = [change for change in answer(question).changes if is_later(change)]
    for claim in question.view.ledger.claims():
        question.view.ledger.release(claim.key)
    for change in later:
        assert answer(with_request(question, parse(change.request))).fits
