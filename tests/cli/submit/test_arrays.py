"""gbatch's options on several tasks."""

from pathlib import Path
from typing import Any

import pytest

from dovetail.api.gpujob import ArraySpec, SweepSpec
from dovetail_cli.submit import arrays
from dovetail_cli.ui.errors import UsageError


def read(**options: Any) -> arrays.Many:
    given = {"array": None, "params": (), "param_file": None, "name_template": None, "max_concurrent": None}
    return arrays.read(**(given | options))


def values(sweep: SweepSpec | None) -> dict[str, list[str]]:
    assert sweep is not None
    return {each.name: each.values for each in sweep.parameters}


def test_without_such_options_there_is_one_job() -> None:
    assert read() == arrays.Many()


def test_an_array_is_passed_on_as_it_is_written() -> None:
    array = read(array="0-15:2%4").array
    assert array is not None
    assert array.indexes == "0-15:2%4"


def test_an_array_takes_its_limit_from_the_option_too() -> None:
    array = read(array="0-15", max_concurrent=3).array
    assert array is not None
    assert array.parallelism == 3


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("lr=0.1,0.01", ["0.1", "0.01"]),
        ("seed=1:3", ["1", "2", "3"]),
        ("lr=0.1:0.3:0.1", ["0.1", "0.2", "0.3"]),
        ("n=10:1:-4", ["10", "6", "2"]),
        ("image=repo:tag", ["repo:tag"]),
        ("text=a=b", ["a=b"]),
    ],
)
def test_the_values_of_a_parameter(said: str, expected: list[str]) -> None:
    assert list(values(read(params=[said]).sweep).values()) == [expected]


def test_several_parameters_are_combined_each_with_each() -> None:
    sweep = read(params=["lr=1,2", "bs=3,4"], name_template="lr{lr}-{index}", max_concurrent=2).sweep
    assert sweep is not None
    assert (sweep.combine, sweep.parallelism, sweep.name_template) == ("Product", 2, "lr{lr}-{index}")
    assert values(sweep) == {"lr": ["1", "2"], "bs": ["3", "4"]}


def test_each_line_of_a_file_is_a_task_with_each_value_of_the_parameters(tmp_path: Path) -> None:
    path = tmp_path / "params.csv"
    # As spreadsheets write it: with a byte order mark.
    path.write_text('lr,note\n0.1,"a, b"\n0.2,c\n', encoding="utf-8-sig")
    sweep = read(param_file=str(path), params=["seed=1,2"]).sweep
    assert sweep is not None
    assert sweep.combine == "Zip"
    assert values(sweep) == {
        "lr": ["0.1", "0.1", "0.2", "0.2"],
        "note": ["a, b", "a, b", "c", "c"],
        "seed": ["1", "2", "1", "2"],
    }


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("template", [None, "run-{index}"])
@pytest.mark.parametrize("of", ["array", "params", "param_file", "params and param_file"])
def test_what_an_option_says_holds_whichever_others_say_which_tasks_there_are(
    tmp_path: Path, of: str, template: str | None, limit: int | None
) -> None:
    path = tmp_path / "params.csv"
    path.write_text("lr\n0.1\n0.2\n", encoding="utf-8")
    given: dict[str, Any] = {"array": "0-7", "params": ["seed=1,2"], "param_file": str(path)}
    options = {name: value for name, value in given.items() if name in of.split(" and ")}
    made: ArraySpec | SweepSpec | None
    if of == "array":
        made = read(**options, max_concurrent=limit).array
    else:
        made = sweep = read(**options, name_template=template, max_concurrent=limit).sweep
        assert sweep is not None
        assert sweep.name_template == (template or "")
        assert set(values(sweep)) == {"params": {"seed"}, "param_file": {"lr"}}.get(of, {"lr", "seed"})
    assert made is not None
    assert made.parallelism == limit


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"array": "5-"}, '--array "5-": write indexes below 100000, such as 0-15'),
        ({"array": "0-100000"}, '--array "0-100000": write indexes below 100000, such as 0-15'),
        ({"array": "5-1"}, '--array "5-1": 5-1 ends before it starts, write 1-5'),
        ({"array": "0-3%2", "max_concurrent": 2}, "leave --max-concurrent out"),
        ({"array": "0-3", "params": ["a=1"]}, "--array counts tasks"),
        ({"name_template": "x"}, "--name-template is about several tasks"),
        ({"max_concurrent": 2}, "--max-concurrent is about several tasks"),
        ({"max_concurrent": 0, "array": "1"}, "--max-concurrent 0: allowed are 1 to 1000"),
        ({"params": ["lr"]}, '--param "lr": write a name and values'),
        ({"params": ["1r=2"]}, '"1r" is no name'),
        ({"params": ["lr=1,,2"]}, "a value between two commas is missing"),
        ({"params": ["n=1:5:0"]}, "1 never comes to 5 in steps of 0"),
        ({"params": ["n=1:5:-1"]}, "1 never comes to 5 in steps of -1"),
        ({"params": ["n=1:5000"]}, "5000 values, and 1000 tasks are allowed"),
        ({"params": ["a=1:100", "b=1:100"]}, "10000 combinations, and 1000 tasks are allowed"),
        ({"params": ["a=1", "a=2"]}, "a is given twice"),
        ({"params": ["a=1"], "name_template": "x{b}"}, "{b} is none of {a}, {index}"),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as error:
        read(**options)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "first line names"),
        ("lr\n", "first line names"),
        ("1,2\n3,4\n", "first line names"),
        ("a,b\n1\n", "line 2"),
        ("a,a\n1,2\n", "a is given twice"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "params.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        read(param_file=str(path))


@pytest.mark.parametrize("word", ["echo {seed}", "{Lr}", "a{lr}b{bs}"])
def test_a_placeholder_that_no_parameter_fills_in_is_refused(word: str) -> None:
    sweep = read(params=["lr=0.1,0.2"]).sweep
    with pytest.raises(UsageError, match=r"is no parameter: --param names \{lr\}"):
        arrays.check_placeholders(["python", word], sweep=sweep)


@pytest.mark.parametrize("word", ["{lr}", "${HOME}", "{}", "{print $1}", "{ echo; }", "{1}"])
def test_other_braces_stay(word: str) -> None:
    arrays.check_placeholders([word], sweep=read(params=["lr=0.1,0.2"]).sweep)
    arrays.check_placeholders(["{seed}"], sweep=None)
