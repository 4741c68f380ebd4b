"""`dovetail quota set` and `delete`."""

from typing import Any

import pytest

from dovetail_cli import app
from dovetail_cli.nodes import quota_changes
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import make_quota

NOTHING: dict[str, Any] = {"lists": {}, "amounts": {}, "per": None, "may_preempt": None}


def test_options_become_fields_and_none_lifts_a_limit() -> None:
    assert quota_changes.read(
        lists={"--namespaces": "a, b", "--users": "all", "--pools": None},
        amounts={"--gpus": "8", "--running-jobs": "none", "--queued-jobs": None, "--max-priority": "255"},
        per="namespace",
        may_preempt=False,
    ) == {
        "namespaces": ["a", "b"],
        "users": [],
        "gpus": 8,
        "runningJobs": None,
        "maxPriority": 255,
        "per": "Namespace",
        "mayPreempt": False,
    }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "say what to set, such as --gpus 8"),
        ({"amounts": {"--gpus": "many"}}, '--gpus "many": write a whole number from 0 to 1000000, such as --gpus 8'),
        ({"amounts": {"--shares": "0"}}, "write a whole number from 1 to 10000"),
        ({"amounts": {"--max-priority": "256"}}, "write a whole number from 0 to 255"),
        ({"lists": {"--namespaces": "a,,b"}}, '--namespaces "a,,b": write names separated by commas'),
        ({"per": "team"}, '--per "team": allowed are Together, Namespace, User'),
    ],
)
def test_a_wrong_value_is_named_with_its_option(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        quota_changes.read(**NOTHING | given)
    assert problem in str(refused.value)


def test_the_answer_says_what_is_limited_and_for_whom() -> None:
    quota = make_quota(namespaces=["a"], users=["u"], gpus=8, maxPriority=5, per="User", mayPreempt=False, pools=["x"])
    said = quota_changes._limits_of(quota)
    assert said == "gpus 8, max-priority 5, no preemption, for a and u, each user by itself, nodes of x."
    assert quota_changes._limits_of(make_quota()) == "no limits, for everyone."


def test_two_words_are_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["quota", "set", "Vision", "--gpus", "8"]) == 2
    assert capsys.readouterr().err.startswith('dovetail: NAME "Vision": write up to')
    assert app.main(["quota", "set", "--help"]) == 0
    assert "Usage: dovetail quota set" in capsys.readouterr().out
