"""Trials leave nothing behind, find small selections, and departures say what is known of their ends."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.answers.explain.departures import departures
from dovetail.answers.explain.question import Holder, Question
from dovetail.answers.explain.what_if import Trial, emptied, needed
from dovetail.api.reasons.remedies import HOLDING_JOB
from tests.core.engine.builders import hold_devices, make_ask
from tests.core.explain.builders import Cluster, make_node
from tests.core.explain.test_changes_help import questions
from tests.world.tables import content_of


@settings(max_examples=40, deadline=None)
@given(questions())
def test_a_trial_leaves_the_ledger_as_it_was(question: Question) -> None:
    ledger = question.view.ledger.copy()
    before = content_of(ledger)
    for node in question.nodes:
        trial = Trial(question, ledger=ledger, node=node)
        trial.fits_without(trial.claims)
        assert content_of(ledger) == before
        trial.fits_with(trial.devices[:1], node_ready=True, uncordoned=True)
        assert content_of(ledger) == before


@settings(max_examples=40, deadline=None)
@given(questions(), st.booleans())
def test_an_emptied_cluster_has_all_nodes_and_devices_and_no_claims(question: Question, mended: bool) -> None:
    ledger, there = emptied(question, mended=mended).view.ledger, question.view.ledger
    assert (list(ledger.claims()), sorted(ledger.nodes())) == ([], sorted(there.nodes()))
    for node in there.nodes():
        found, known = ledger.everything(node), there.everything(node)
        assert [device.uuid for device in found] == [device.uuid for device in known]
        assert mended or found == known
        facts = ledger.facts(node)
        assert facts is not None
        assert not mended or not any(each.unavailable for each in (facts, *found))


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 12))
def test_what_is_needed_is_enough_and_nothing_of_it_can_be_left_out(parts: list[int], wanted: int) -> None:
    found = needed(list(enumerate(parts)), enough=lambda chosen: sum(size for _, size in chosen) >= wanted)
    if found is None:
        assert sum(parts) < wanted
        return
    sizes = [size for _, size in found]
    assert sum(sizes) >= wanted
    assert all(sum(sizes) - size < wanted for size in sizes)


@pytest.mark.parametrize(
    ("ends", "by"),
    [
        (("2026-11-21T10:00:00Z", "2026-11-21T12:00:00Z"), ", at the latest 2026-11-21T12:00:00Z"),
        (("2026-11-21T12:00:00Z", "2026-11-21T10:00:00Z"), ", at the latest 2026-11-21T12:00:00Z"),
        (("2026-11-21T10:00:00Z", ""), ""),
        (("", ""), ""),
    ],
)
def test_departures_of_several_are_known_by_the_last_of_their_ends(ends: tuple[str, str], by: str) -> None:
    cluster = Cluster().add(make_node("a"), gpus=2)
    for at in range(2):
        hold_devices(cluster.ledger, "a", at, key=f"k{at}")
    holders = {f"k{at}": Holder(called=HOLDING_JOB(job=f"{at}"), ends_by=end) for at, end in enumerate(ends)}
    (found,) = departures(cluster.question(make_ask("2"), holders=holders))
    assert found.text == f"frees on a when job 0, job 1 end{by}"


def test_of_nodes_where_as_many_are_in_the_way_those_that_end_first_come_first() -> None:
    cluster, holders = Cluster(), dict[str, Holder]()
    ends = {"a": ("11", "15"), "b": ("13", "12"), "c": ("10", ""), "d": ("14", "14")}
    for node, hours in ends.items():
        cluster.add(make_node(node), gpus=2)
        for at, hour in enumerate(hours):
            hold_devices(cluster.ledger, node, at, key=f"{node}{at}")
            by = f"2026-11-21T{hour}:00:00Z" if hour else ""
            holders[f"{node}{at}"] = Holder(called=HOLDING_JOB(job=f"{node}{at}"), ends_by=by)
    found = departures(cluster.question(make_ask("2"), holders=holders))
    assert [change.node for change in found] == ["b", "d", "a"]
