"""What jobs wait for: scenarios as data, and circles against a model that tries every order."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.gpujob import Dependency, DependencyStatus, GPUJob, job_of
from dovetail.queue.dependencies import Needs, circles, states_of, unmet


def make_job(status: dict[str, Any] | None = None, **spec: Any) -> GPUJob:
    spec |= {"gpu": 1, "template": {"spec": {}}}
    return job_of({"metadata": {"name": "a"}, "spec": spec, "status": status or {}})


def status_of(state: str, *, condition: str = "Succeeded", job: dict[str, Any] | None) -> str:
    there = None if job is None else make_job(job)
    wanted = [msgspec.convert({"name": "a", "condition": condition}, Dependency)]
    (found,) = states_of(wanted, job_named={"a": there}.get, before=())
    assert found.state == state
    return found.state


@pytest.mark.parametrize(
    ("condition", "job", "state"),
    [
        ("Succeeded", None, "Unknown"),
        ("Succeeded", {}, "Waiting"),
        ("Succeeded", {"phase": "Running"}, "Waiting"),
        ("Succeeded", {"phase": "Succeeded"}, "Met"),
        ("Succeeded", {"phase": "Failed"}, "Failed"),
        ("Succeeded", {"phase": "Cancelled"}, "Failed"),
        ("Finished", {"phase": "Suspended"}, "Waiting"),
        ("Finished", {"phase": "TimedOut"}, "Met"),
        ("Finished", {"phase": "Cancelled"}, "Met"),
        ("Started", {"phase": "Starting"}, "Waiting"),
        ("Started", {"phase": "Running"}, "Met"),
        ("Started", {"phase": "Suspended", "startTime": "2026-01-01T00:00:00Z"}, "Met"),
        ("Started", {"phase": "Failed", "startTime": "2026-01-01T00:00:00Z"}, "Met"),
        ("Started", {"phase": "Cancelled"}, "Failed"),
    ],
)
def test_how_a_dependency_stands(condition: str, job: dict[str, Any] | None, state: str) -> None:
    status_of(state, condition=condition, job=job)


def states(*words: str) -> list[DependencyStatus]:
    """`met`, `waiting`, … as the states of jobs a, b, …"""
    return [
        msgspec.convert({"name": name, "condition": "Succeeded", "state": word.capitalize()}, DependencyStatus)
        for name, word in zip("abcdefgh", words, strict=False)
    ]


@pytest.mark.parametrize(
    ("policy", "words", "reason", "message"),
    [
        ("All", [], None, ""),
        ("All", ["met", "met"], None, ""),
        ("All", ["met", "waiting"], "Dependency", "Waits for b to succeed"),
        ("All", ["unknown"], "Dependency", "Waits for a to succeed (there is no such job yet)"),
        ("All", ["waiting", "failed"], "DependencyFailed", "A dependency cannot be met: b did not succeed"),
        ("All", ["waiting"] * 5, "Dependency", "Waits for a to succeed and b to succeed and c to succeed and 2 more"),
        ("Any", ["met", "failed"], None, ""),
        ("Any", ["waiting", "failed"], "Dependency", "Waits for a to succeed"),
        ("Any", ["waiting", "waiting"], "Dependency", "Waits for a to succeed or b to succeed"),
        ("Any", ["failed", "failed"], "DependencyFailed",
         "A dependency cannot be met: a did not succeed, b did not succeed"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told_in_a_sentence(policy: str, words: list[str], reason: str | None, message: str) -> None:
    found = unmet(states(*words), spec=make_job(dependencyPolicy=policy).spec)
    assert (found and found.reason, found.message if found else "") == (reason, message)


def test_what_was_met_stays_met_when_that_job_is_gone() -> None:
    before = states("met")
    assert states_of([Dependency(name="a")], job_named=lambda _: None, before=before)[0].state == "Met"


@pytest.mark.parametrize("word", ["waiting", "unknown", "failed"])
def test_only_what_was_met_stays_so(word: str) -> None:
    assert states_of([Dependency(name="a")], job_named=lambda _: None, before=states(word))[0].state == "Unknown"


@pytest.mark.parametrize(
    ("count", "end"), [(3, "c to succeed"), (4, "c to succeed and 1 more"), (6, "c to succeed and 3 more")]
)
def test_three_are_named_and_the_others_counted(count: int, end: str) -> None:
    found = unmet(states(*["waiting"] * count), spec=make_job(dependencyPolicy="All").spec)
    assert found is not None
    assert found.message == f"Waits for a to succeed and b to succeed and {end}"


def test_what_was_met_for_another_condition_is_asked_anew() -> None:
    gone: dict[str, GPUJob] = {}
    wanted = [Dependency(name="a", condition="Finished")]
    assert states_of(wanted, job_named=gone.get, before=states("met"))[0].state == "Unknown"


def needs(text: str, *, any_one: str = "") -> dict[str, Needs]:
    """`a:bc b:a` says that a waits for b and c, and b for a."""
    pairs = [word.split(":") for word in text.split()]
    return {key: Needs(keys=tuple(others), any_one=key in any_one) for key, others in pairs}


@pytest.mark.parametrize(
    ("graph", "any_one", "found"),
    [
        ("a:b b:c c:", "", {}),
        ("a:a", "", {"a": "aa"}),
        ("a:b b:a", "", {"a": "aba", "b": "bab"}),
        ("a:b b:a x:a", "", {"a": "aba", "b": "bab"}),
        ("a:bx b:a", "a", {}),
        ("a:b b:a", "ab", {"a": "aba", "b": "bab"}),
        ("a:bb b:a", "a", {"a": "aba", "b": "bab"}),
        ("a:x", "", {}),
    ],
    ids=[
        "a chain",
        "itself",
        "two",
        "one that waits for a circle",
        "another way out",
        "no way out",
        "one job twice",
        "unknown",
    ],
)
def test_circles_are_found(graph: str, any_one: str, found: dict[str, str]) -> None:
    assert circles(needs(graph, any_one=any_one)) == {key: tuple(way) for key, way in found.items()}


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.sets(st.sampled_from("abcdefx")), st.booleans())))
def test_only_jobs_that_no_order_can_run_are_in_a_circle(drawn: dict[str, tuple[set[str], bool]]) -> None:
    graph = {key: Needs(keys=tuple(sorted(others)), any_one=some) for key, (others, some) in drawn.items()}
    done = {"x"} | (set("abcdef") - set(graph))
    for _ in graph:
        for key, need in graph.items():
            met = [other in done for other in need.keys]
            if not met or (any(met) if need.any_one else all(met)):
                done.add(key)
    stuck = set(graph) - done
    found = circles(graph)
    assert set(found) <= stuck
    assert bool(found) == bool(stuck)
    for key, way in found.items():
        assert way[0] == way[-1] == key
        assert all(after in graph[before].keys for before, after in pairwise(way))
