"""The steps that the machine of guests draws by a seed, as data: they can be taken again in another world."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import Phase, seed, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from tests.world.test_held_machine import HeldMachine

# Examples that hypothesis draws for one seed, of which the one with most kinds of steps counts: the first are plain.
_EXAMPLES: Final = 6
_STEPS: Final = 8


@dataclass(frozen=True, kw_only=True)
class Step:
    """A rule of the machine, its arguments, and the choices that it draws itself: which of the sorted values."""

    rule: str
    arguments: dict[str, Any]
    choices: list[int]

    def take(self, machine: HeldMachine) -> None:
        """Take it on a machine, whose objects may have other names."""
        chosen = {"data": _Again(self.choices)} if "data" in self.arguments else {}
        getattr(machine, self.rule)(**{**self.arguments, **chosen})

    def __str__(self) -> str:
        shown = [f"{key}={value}" for key, value in self.arguments.items() if key != "data"]
        return f"{self.rule}({', '.join([*shown, *map(str, self.choices)])})"


class _Choices:
    """Draws, and keeps which values were drawn."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.kept: list[int] = []

    def draw(self, strategy: Any) -> Any:
        value = self._data.draw(strategy)
        self.kept.append(_values(strategy).index(value))
        return value


class _Again:
    """Draws what was drawn: the same place among the values that there are now."""

    def __init__(self, choices: list[int]) -> None:
        self._left = list(choices)

    def draw(self, strategy: Any) -> Any:
        values = _values(strategy)
        return values[(self._left.pop(0) if self._left else 0) % len(values)]


def _values(strategy: Any) -> list[Any]:
    found = strategy.wrapped_strategy if hasattr(strategy, "wrapped_strategy") else strategy
    if hasattr(found, "elements"):
        return list(found.elements)
    return list(range(found.start, found.end + 1))


def drawn(number: int) -> list[Step]:
    """The steps of a seed, drawn and tried in virtual time."""
    examples: list[list[Step]] = []

    class Recorded(HeldMachine):
        def __init__(self) -> None:
            super().__init__()
            examples.append([])

    found, within = HeldMachine.setup_state(), list[str]()
    for mark, rules in ((initialize, found.initializers), (rule, found.rules)):
        for each in rules:
            kept = _recorded(each.function, examples=examples, within=within)
            setattr(Recorded, kept.__name__, mark(**each.arguments)(kept))
    chosen = settings(
        max_examples=_EXAMPLES, stateful_step_count=_STEPS, deadline=None, database=None, derandomize=False,
        phases=[Phase.generate],
    )  # fmt: skip
    run_state_machine_as_test(seed(number)(Recorded), settings=chosen)
    return max(examples, key=lambda steps: len({step.rule for step in steps}))


def _recorded(function: Callable[..., None], *, examples: list[list[Step]], within: list[str]) -> Callable[..., None]:
    def recorded(self: HeldMachine, *values: Any, **arguments: Any) -> None:
        if within:
            # A rule uses another one: that is no step of its own.
            function(self, *values, **arguments)
            return
        choices = _Choices(arguments["data"]) if "data" in arguments else None
        within.append(function.__name__)
        try:
            function(self, **{**arguments, **({"data": choices} if choices else {})})
        finally:
            within.pop()
        kept = choices.kept if choices else []
        examples[-1].append(Step(rule=function.__name__, arguments=arguments, choices=kept))

    recorded.__name__ = function.__name__
    return recorded
