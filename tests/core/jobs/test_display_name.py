"""The names that people give jobs, and those of their objects."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.api.meta import ObjectMeta
from dovetail.jobs.display_name import display_name, is_object_name, object_name, problem_of


@pytest.mark.parametrize("name", ["train", "a", "7", "brave-river-1234", "x" * 52])
def test_a_name_that_kubernetes_takes_is_the_objects(name: str) -> None:
    assert object_name(name) == name


@pytest.mark.parametrize(
    ("name", "begins"),
    [("lr0.001_bs32", "lr0-001-bs32-"), ("My Run", "my-run-"), ("日本", "job-"), ("x" * 60, "xxxxx")],
)
def test_another_name_gives_a_similar_one_with_a_hash(name: str, begins: str) -> None:
    assert object_name(name).startswith(begins)
    assert is_object_name(object_name(name))


def test_names_that_look_alike_have_objects_of_their_own() -> None:
    alike = ["lr0.001_bs32", "lr0-001_bs32", "LR0.001_bs32", "lr0-001-bs32"]
    assert len({object_name(name) for name in alike}) == len(alike)


@given(st.text(min_size=1, max_size=120))
def test_every_allowed_name_has_an_object(name: str) -> None:
    assert problem_of(name) or is_object_name(object_name(name))


@given(st.text(alphabet=string.ascii_lowercase + string.digits + "-", min_size=1, max_size=60))
def test_a_name_is_changed_only_if_kubernetes_would_refuse_it(name: str) -> None:
    assert (object_name(name) == name) == is_object_name(name)


def test_people_see_their_own_name_and_else_the_objects() -> None:
    assert display_name(ObjectMeta(name="a-1", annotations={names.DISPLAY_NAME: "A"})) == "A"
    assert display_name(ObjectMeta(name="a-1")) == "a-1"
