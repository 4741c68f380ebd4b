"""YAML text as values: times are texts, and whatever is wrong is one error with one line."""

import pytest

from dovetail.formats.yaml_text import YAMLTextError, load_all_yaml, load_yaml


@pytest.mark.parametrize("text", ["2026-02-01", "2026-02-31T08:00:00Z", "2026-13-45"])
def test_a_time_is_its_text_as_kubectl_reads_it(text: str) -> None:
    assert load_yaml(f"at: {text}") == {"at": text}


def test_documents_are_read_in_order_and_an_empty_text_is_none() -> None:
    assert load_all_yaml("1\n---\na: b\n---\n") == [1, {"a": "b"}, None]
    assert load_yaml("") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [b\n", "line 2, column 1: expected ',' or ']', but got '<stream end>'"),
        ("a: b\n---\nc: d\n", "expected one document, and there are several"),
        ("[" * 3000, "it is nested too deeply"),
        (f"a: {'9' * 5000}", "a value does not suit its tag: Exceeds the limit"),
        ("a: !!int abc", "a value does not suit its tag: invalid literal for int"),
        ("a: !!int ''", "a value does not suit its tag"),
        ("a: !!bool abc", "a value does not suit its tag"),
        ("a: !!timestamp abc", "a value does not suit its tag"),
        ("a: \0", "unacceptable character"),
        ("!!python/object:os.system x", "line 1, column 1: could not determine a constructor"),
    ],
)
def test_whatever_is_wrong_is_one_error_with_one_line(text: str, problem: str) -> None:
    with pytest.raises(YAMLTextError) as refused:
        load_yaml(text)
    assert str(refused.value).startswith(problem)
    assert "\n" not in str(refused.value)
