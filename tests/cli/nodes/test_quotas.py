"""What `dovetail quota` shows."""

from random import Random

import pytest

from dovetail.query.errors import NotFoundError
from dovetail.query.quotas.listing import quota_list
from dovetail_cli.nodes.quotas import COLUMNS, choose, in_order, rows, sentences
from dovetail_cli.ui import output
from tests.core.query.test_quotas import EACH, VISION, make_quota

HOURS = {"since": "2026-06-01T00:00:00Z", "hour": "2026-06-08T00:00:00Z"}


def test_used_stands_beside_what_may_be_used() -> None:
    assert output.render(list(rows(quota_list([VISION, EACH]).items)), columns=COLUMNS, form="table").splitlines() == [
        "QUOTA      WHO        GPUS   RUNNING  QUEUED  SHARES  GPU_HOURS  POOLS",
        "each-user  ada        0      0/2      0       -       -          a100,t4",
        "each-user  (no name)  0      0/2      0       -       -          a100,t4",
        "vision     vision     6.5/8  3        0/100   2       1.5        any",
    ]


def test_a_quota_of_which_nothing_is_used_yet_is_shown_too() -> None:
    (row,) = rows(quota_list([make_quota("all", limit={"gpus": 4})]).items)
    assert (row["WHO"], row["GPUS"]) == ("everybody", "0/4")


def test_a_quota_of_its_children_alone_says_so_before_its_status_does() -> None:
    above, below = make_quota("dep"), make_quota("team", parent="dep", namespaces=["team"])
    assert [row["WHO"] for row in rows(quota_list([above, below]).items)] == ["its children", "team"]


def test_a_quota_that_its_status_gives_a_guarantee_is_of_its_children_where_it_names_nobody() -> None:
    guarded = make_quota("dep", guaranteed={"gpus": 4}, status={"guarantee": {"gpus": 4}})
    assert [row["WHO"] for row in rows(quota_list([guarded]).items)] == ["its children"]


@pytest.mark.parametrize(
    ("known", "says", "shown"),
    [(4, 4, "4"), (2.5, 4, "2.5/4"), (6, 4, "6"), (4, None, "4")],
)
def test_a_guarantee_that_was_scaled_down_stands_beside_what_it_is_to_be(
    known: float, says: float | None, shown: str
) -> None:
    spec = {} if says is None else {"guaranteed": {"gpus": says}}
    (row,) = rows(quota_list([make_quota("dep", status={"guarantee": {"gpus": known}}, **spec)]).items)
    assert row["GUARANTEED"] == shown


def test_quotas_are_chosen_by_name_and_a_missing_one_is_an_error() -> None:
    found = quota_list([VISION, EACH])
    assert [each.name for each in choose(found, names=["vision"]).items] == ["vision"]
    assert choose(found, names=[]) == found
    with pytest.raises(NotFoundError, match="no GPUQuota nlp"):
        choose(found, names=["nlp"])


@pytest.mark.parametrize(
    ("reserve", "said"),
    [
        (
            {"gpus": 4, "ready": 3, "lent": 2},
            "chat keeps 4 GPUs ready for its next replicas: 3 are ready, 2 of them used ",
        ),
        ({"gpus": 4, "ready": 4}, "chat keeps 4 GPUs ready for its next replicas: 4 are ready."),
    ],
)
def test_below_the_table_is_what_is_ready_of_a_reserve(reserve: dict[str, int], said: str) -> None:
    quota = make_quota("chat", guaranteed={"gpus": 4}, reserve={"gpus": 4}, status={"reserve": reserve})
    (line,) = sentences(quota_list([quota]).items)
    assert line.startswith(said)


def test_a_reserve_that_the_guarantee_leaves_nothing_of_has_no_line() -> None:
    quota = make_quota("chat", guaranteed={"gpus": 4}, reserve={"gpus": 4}, status={"reserve": {}})
    assert list(sentences(quota_list([quota]).items)) == []


NONE_YET = "chat has no forecast of this hour yet: no such hour of a day was observed as a whole."


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        (None, ""),
        ({"peak": 3.0}, ""),
        (
            {"expected": 6.5, "peak": 3.0},
            "and requested 3 at most so far; no forecast was compared yet",
        ),
        (
            {"expected": 6.5, "peak": 7.0, "hours": 168, "error": 0.391},
            "and requested 7 at most so far; past forecasts were 0.39 GPUs off on average (168 hours)",
        ),
    ],
    ids=["before the first look", "before the first whole hour", "before the first comparison", "after a week"],
)
def test_below_the_table_is_what_is_forecast_and_how_good_that_is(demand: dict[str, float] | None, said: str) -> None:
    status = {} if demand is None else {"forecast": HOURS | demand}
    quota = make_quota("chat", forecast={"gpus": 8}, status=status)
    expects = f"chat is forecast to request 6.5 GPUs in this hour, {said}." if said else NONE_YET
    assert list(sentences(quota_list([quota]).items)) == [expects]


def test_a_forecast_that_the_quota_no_longer_has_is_not_shown() -> None:
    quota = make_quota("chat", status={"forecast": HOURS | {"expected": 6.5}})
    (row,) = quota_list([quota]).items
    assert (row.forecast, row.demand, list(sentences([row]))) == (None, None, [])


@pytest.mark.parametrize("seed", range(4))
def test_each_quota_is_below_its_parent_whatever_the_tree_is(seed: int) -> None:
    rng = Random(seed)
    for _ in range(30):
        names = rng.sample("abcdefgh", rng.randrange(1, 9))
        # Parents may be missing, and form circles.
        parents = {name: rng.choice([None, None, *"abcdefgh"]) for name in names}
        parents = {name: parent for name, parent in parents.items() if parent != name}
        quotas = quota_list([make_quota(name, parent=parents.get(name)) for name in names]).items
        found = [each.name for each in in_order(quotas)]
        assert sorted(found) == sorted(names)

        def above(name: str) -> list[str]:
            chain = [name]
            while (parent := parents.get(chain[-1])) in names and parent not in chain:  # noqa: B023
                chain.append(str(parent))
            return chain[::-1]

        in_circles = any(parents.get(above(name)[0]) in names for name in names)
        paths = list(map(above, found))
        assert paths == sorted(paths)
        if not in_circles:
            for at, path in enumerate(paths):
                # What is between a quota and its parent is below that parent too.
                if len(path) > 1:
                    parent = found.index(path[-2])
                    assert parent < at
                    assert all(other[: len(path) - 1] == path[:-1] for other in paths[parent:at])
