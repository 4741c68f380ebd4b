"""The variables of a framework's settings, as they are set in this process."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


def apply(environment: Mapping[str, str], *, allocated: bool) -> None:
    """Set the variables before a framework looks at the devices.

    Without an allocation, the settings count devices from 0. Then CUDA_VISIBLE_DEVICES of a container or a shell is
    closer to the truth and stays. Variables that a launcher has set for several processes stay too.
    """
    for name, value in environment.items():
        if name == _VISIBLE and allocated:
            os.environ[name] = value
        else:
            os.environ.setdefault(name, value)


def hide_gpus() -> None:
    """Let a framework that has not looked at the devices yet see none: the training runs on the CPU."""
    os.environ[_VISIBLE] = ""


@contextmanager
def restored() -> Iterator[None]:
    """Give the environment back as it was, for the next training of this process."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
