"""The variables of a training: set as its settings say, and as they were before once it is over, however it ends."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.sdk.training import environment

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
NAMES: Final = (VISIBLE, "RANK", "TF_FORCE_GPU_ALLOW_GROWTH")
VARIABLES: Final = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["", "0", "1"]))


@contextmanager
def alone(variables: Mapping[str, str]) -> Iterator[None]:
    """Of these names, only these variables are set."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.delenv(name, raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def of_ours() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in NAMES}


@given(
    before=VARIABLES, settings=VARIABLES, own=VARIABLES, removed=st.sets(st.sampled_from(NAMES)), fails=st.booleans()
)
def test_after_a_training_every_variable_is_as_before(
    before: dict[str, str], settings: dict[str, str], own: dict[str, str], removed: set[str], fails: bool
) -> None:
    def train() -> None:
        with environment.restored():
            environment.apply(settings, allocated=True)
            os.environ.update(own)
            for name in removed & os.environ.keys():
                del os.environ[name]
            if fails:
                raise KeyboardInterrupt

    with alone(before):
        whole = dict(os.environ)
        for _ in range(2):
            try:
                train()
            except KeyboardInterrupt:
                assert fails
            assert dict(os.environ) == whole


@given(before=VARIABLES, settings=VARIABLES, allocated=st.booleans())
def test_only_the_devices_of_an_allocation_replace_what_is_set(
    before: dict[str, str], settings: dict[str, str], allocated: bool
) -> None:
    with alone(before):
        environment.apply(settings, allocated=allocated)
        expected = {**settings, **before}
        if allocated and VISIBLE in settings:
            expected[VISIBLE] = settings[VISIBLE]
        assert of_ours() == expected


def test_a_training_on_the_cpu_sees_no_gpu_and_the_next_one_does() -> None:
    with alone({VISIBLE: "3"}):
        with environment.restored():
            environment.hide_gpus()
            assert os.environ[VISIBLE] == ""
        assert os.environ[VISIBLE] == "3"
