"""An optimizer that counts."""

from typing import Any


class Adam:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.steps = 0

    def zero_grad(self) -> None: ...

    def step(self) -> None:
        self.steps += 1
