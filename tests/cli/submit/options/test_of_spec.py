"""Options that each say one field of the spec."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from dovetail.api.gpujob import GPUJobSpec
from dovetail_cli.commands.gbatch import app
from dovetail_cli.submit import submit
from dovetail_cli.submit.manifest import Submission, build
from dovetail_cli.submit.options.of_spec import OPTIONS, SpecOption
from dovetail_cli.ui.errors import UsageError
from tests.spec_values import OPTIONAL, Optional


def option_of(flag: str) -> SpecOption:
    (found,) = [each for each in OPTIONS if each.flag == flag]
    return found


def test_each_option_has_an_example_and_says_a_field_of_the_spec() -> None:
    assert {option.flag for option in OPTIONS} == {each.flag for each in OPTIONAL}
    assert {option.field for option in OPTIONS} <= {each.name for each in msgspec.structs.fields(GPUJobSpec)}


@pytest.mark.parametrize("asked", OPTIONAL, ids=[each.flag for each in OPTIONAL])
def test_a_wrong_value_is_named_with_its_option_and_what_is_allowed(asked: Optional) -> None:
    with pytest.raises(UsageError) as refused:
        option_of(asked.flag).read(asked.wrong)
    assert str(refused.value).startswith(f'{asked.flag} "{asked.wrong}": {asked.refusal}')


@pytest.mark.parametrize("pool", ["", "a_b", "-a", "a" * 64])
def test_a_pool_that_no_label_can_have_is_refused(pool: str) -> None:
    with pytest.raises(UsageError, match=f'--pool "{pool}": write the value of a label'):
        option_of("--pool").read(pool)


@pytest.mark.parametrize("in_script", [False, True], ids=["command line", "script"])
@pytest.mark.parametrize("asked", OPTIONAL, ids=[each.flag for each in OPTIONAL])
def test_gbatch_puts_the_field_into_the_job(
    asked: Optional, in_script: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[Submission]()
    monkeypatch.setattr(submit, "submit", lambda submission, **_: taken.append(submission))
    script = tmp_path / "train.sh"
    script.write_text(f"#!/bin/sh\n# GFLOW {asked.flag} {asked.text}\ntrue\n")
    words = [str(script)] if in_script else [asked.flag, asked.text, "true"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    job = build(taken[0], namespace="vision")
    assert msgspec.to_builtins(getattr(job.spec, option_of(asked.flag).field)) == asked.value


def test_an_option_that_is_not_given_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = list[Submission]()
    monkeypatch.setattr(submit, "submit", lambda submission, **_: taken.append(submission))
    assert CliRunner().invoke(app, ["true"], catch_exceptions=False).exit_code == 0
    assert taken[0].fields == {}
