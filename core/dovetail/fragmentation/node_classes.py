"""Groups of nodes that are equal in all that placement looks at.

Most room is on few kinds of nodes.
"""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

State: TypeAlias = tuple[int, ...]


class Kinds:
    """A number for each node, below the number of nodes, that equal nodes share.

    Free numbers are reused.
    """

    def __init__(self, states: Iterable[State]) -> None:
        self._states = list(states)
        self._numbers: dict[State, int] = {}
        self._members = [0] * len(self._states)
        self._unused = list(range(len(self._states)))
        self.of: npt.NDArray[np.int64] = np.zeros(len(self._states), dtype=np.int64)
        for node, state in enumerate(self._states):
            self._enter(node, state=state)

    def move(self, node: int, *, state: State) -> None:
        """Change the state of the node."""
        before = self._states[node]
        number = self._numbers[before]
        self._members[number] -= 1
        if not self._members[number]:
            del self._numbers[before]
            self._unused.append(number)
        self._enter(node, state=state)

    def copy(self) -> "Kinds":
        """An independent copy of the numbers."""
        other: Kinds = object.__new__(Kinds)
        other._states = self._states.copy()
        other._numbers = self._numbers.copy()
        other._members = self._members.copy()
        other._unused = self._unused.copy()
        other.of = self.of.copy()
        return other

    def _enter(self, node: int, *, state: State) -> None:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = self._unused.pop()
        self._members[number] += 1
        self._states[node] = state
        self.of[node] = number
