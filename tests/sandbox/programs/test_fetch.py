import pytest

from dovetail_sandbox import bringup, progress
from dovetail_sandbox.errors import InvalidInputError
from dovetail_sandbox.programs import catalog


def test_a_program_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(InvalidInputError, match=r"program: 'nonesuch' is not allowed; use one of .*kubeconform"):
        bringup.fetch(["nonesuch"], real_node=False, report=progress.reporter())


@pytest.mark.cluster
def test_what_a_sandbox_runs_is_at_hand_afterwards() -> None:
    names = bringup.fetch(["kubeconform"], real_node=False, report=progress.reporter())
    assert set(names) == {*catalog.CONTROL_PLANE, "kubeconform"}
