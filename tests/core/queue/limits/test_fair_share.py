"""Fair share: what was used of late, and whose turn that makes it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.limits.fair_share import Spell, account_of, decayed, level_of, levels, usage
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import order
from tests.core.queue.backfill.test_backfill import make_job

NOW = datetime(2026, 1, 8, tzinfo=UTC)
WEEK = 7 * 86_400.0
VISION, NLP = ("vision", ""), ("nlp", "")


def make_quota(name: str, **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"shares": 1} | spec}, GPUQuota)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def used(*spells: Spell, now: datetime = NOW, **noted: float) -> dict[tuple[str, str], float]:
    accounts = {(name, ""): amount for name, amount in noted.items()}
    as_of = dict.fromkeys(noted, ago(7))
    return usage(accounts, spells=spells, as_of=as_of, now=now, half_life_seconds=WEEK)


def test_half_is_forgotten_after_the_half_life() -> None:
    assert decayed(100.0, seconds=WEEK, half_life_seconds=WEEK) == 50.0
    assert used(vision=100.0) == {VISION: 50.0}


def test_gpus_that_run_for_a_short_while_count_in_full() -> None:
    spell = Spell(account=VISION, gpus=4, start=NOW - timedelta(seconds=100))
    assert used(spell)[VISION] == pytest.approx(400, rel=1e-3)


def test_what_is_noted_already_is_not_counted_again() -> None:
    spell = Spell(account=VISION, gpus=1, start=ago(30), end=ago(7))
    assert used(spell, vision=100.0) == {VISION: 50.0}


@given(st.floats(0.1, 20), st.floats(0.1, 20), st.floats(0, 1))
def test_whoever_notes_in_between_finds_the_same_as_who_never_did(days: float, length: float, part: float) -> None:
    start = ago(days + length)
    spell = Spell(account=VISION, gpus=2, start=start, end=ago(days))
    noted_at = start + (NOW - start) * part
    once = usage({}, spells=[spell], as_of={}, now=NOW, half_life_seconds=WEEK)
    first = usage({}, spells=[spell], as_of={}, now=noted_at, half_life_seconds=WEEK)
    again = usage(first, spells=[spell], as_of={"vision": noted_at}, now=NOW, half_life_seconds=WEEK)
    assert again[VISION] == pytest.approx(once[VISION], rel=1e-6)


def test_who_has_used_less_for_its_shares_goes_first() -> None:
    known = levels({VISION: 300.0, NLP: 100.0}, shares={"vision": 3, "nlp": 1})
    assert known[VISION] == known[NLP] == pytest.approx(1.0)
    known = levels({VISION: 300.0, NLP: 100.0}, shares={"vision": 1, "nlp": 1})
    assert known[NLP] < 1 < known[VISION]


def test_an_account_that_used_nothing_goes_before_who_has_none_and_that_before_who_used_too_much() -> None:
    known = levels({VISION: 300.0, NLP: 100.0}, shares={"vision": 1, "nlp": 1})
    idle, nobody, much = (level_of(account, known=known) for account in (("new", ""), None, VISION))
    assert idle < nobody < much


def test_before_anything_was_used_age_alone_decides() -> None:
    assert set(levels({VISION: 0.0, NLP: 0.0}, shares={"vision": 1, "nlp": 9}).values()) == {0.0}


def test_within_a_priority_the_share_decides_and_never_across() -> None:
    jobs = [
        replace(make_job("greedy", at=0), share=2.0),
        replace(make_job("modest", at=5), share=0.5),
        replace(make_job("urgent", at=9, priority=11), share=9.0),
    ]
    assert [job.name for job in order(jobs)] == ["team/urgent", "team/modest", "team/greedy"]


def test_the_quota_that_names_somebody_most_closely_is_the_account() -> None:
    quotas = [
        make_quota("everybody", per="Namespace"),
        make_quota("vision", namespaces=["vision"]),
        make_quota("ada", users=["ada"]),
        make_quota("limits", namespaces=["vision"], users=["ada"], shares=None, limit={"gpus": 1}),
    ]
    assert account_of(quotas, subject=Subject(namespace="vision", user="ada")) == ("ada", "")
    assert account_of(quotas, subject=Subject(namespace="vision", user="bob")) == ("vision", "")
    assert account_of(quotas, subject=Subject(namespace="nlp", user="bob")) == ("everybody", "nlp")
    assert account_of(quotas[3:], subject=Subject(namespace="vision", user="ada")) is None


@pytest.mark.parametrize(
    ("user", "namespace", "lowest", "account"),
    [
        ("bob", "vision", "vision", ("vision", "")),
        ("bob", "nlp", "nlp", ("nlp", "")),
        ("ada", "nlp", "nlp", ("ada", "")),
        ("bob", "research", "research", ("research", "")),
        ("bob", "other", None, None),
    ],
)
def test_in_a_tree_a_quota_without_shares_is_the_account_instead_of_those_above_it(
    user: str, namespace: str, lowest: str | None, account: tuple[str, str] | None
) -> None:
    quotas = [
        make_quota("research", namespaces=["research"]),
        make_quota("vision", namespaces=["vision"], shares=None),
        make_quota("nlp", namespaces=["nlp"], shares=None, parent="research"),
        make_quota("ada", users=["ada"]),
    ]
    assert account_of(quotas, subject=Subject(namespace=namespace, user=user), lowest=lowest) == account


def test_accounts_of_one_quota_have_its_shares_each() -> None:
    # Three accounts have used exactly their shares: two of a quota by namespace, and one of another quota.
    accounts = {("teams", "vision"): 100.0, ("teams", "nlp"): 100.0, ("all", ""): 200.0}
    assert set(levels(accounts, shares={"teams": 1, "all": 2}).values()) == {1.0}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "x", "y"])),
        st.floats(1, 1e6), min_size=1,
    ),
    st.fixed_dictionaries({name: st.integers(1, 9) for name in "abc"}),
)  # fmt: skip
def test_the_levels_of_all_accounts_are_1_on_average_by_their_shares(
    accounts: dict[tuple[str, str], float], shares: dict[str, int]
) -> None:
    found = levels(accounts, shares=shares)
    total = sum(shares[quota] for quota, _ in accounts)
    mean = sum(level * shares[quota] for (quota, _), level in found.items()) / total
    # Levels are rounded to steps of 0.05.
    assert mean == pytest.approx(1, abs=0.026)
