import pytest

from dovetail.config.loading import load_settings
from dovetail.config.reference import keys, values_of
from dovetail.config.settings import Settings, live_keys
from tests.core.config.page import PAGE, with_table


def test_the_page_has_every_key_as_it_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "run `python -m tests.core.config.page`"


def test_there_is_a_row_for_each_key_and_of_a_group_for_each_inner_one() -> None:
    names = [key.name for key in keys()]
    assert {name.partition(".")[0] for name in names} == set(Settings.model_fields)
    assert {"preemption.grace", "score_weights.cpu", "gpujobs.max_spec_bytes"} <= set(names)
    assert values_of(Settings()) == {key.name: key.default for key in keys()}
    assert {key.name.partition(".")[0] for key in keys() if key.live} == set(live_keys())


def test_the_variable_of_a_key_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    (grace,) = (key for key in keys() if key.name == "preemption.grace")
    monkeypatch.setenv(grace.variable, "77")
    assert load_settings().preemption.grace == 77
