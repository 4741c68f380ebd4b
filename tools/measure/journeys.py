"""How much of the product a journey passes: its modules, functions and calls, from where it begins to its end.

`python -m tools.measure.journeys` runs one test for each journey and prints a table; `--modules` names the modules in
the order of the journey, with their functions. A call counts if a function that begins the journey is among its
callers, so the counts do not depend on what other tasks run meanwhile.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from tools.measure.modules import PARTS, ROOT

_CONTROLLER: Final = "tests/operator_/controller/test_controller.py::"
_REFUSED: Final = f"{_CONTROLLER}test_a_job_without_room_is_told_why_with_one_write"
_FILTER: Final = "tests/extender/decide/test_filter.py::"
_NAMED: Final = f"{_FILTER}test_while_a_node_fits_the_others_need_no_reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """One way through the product.

    name    what the tables call it
    test    the test that takes it
    begins  the functions by which it begins, as path and qualified name
    passes  which of these calls counts, from 1; None for all
    """

    name: str
    test: str
    begins: frozenset[tuple[str, str]]
    passes: int | None = None


_EVENT: Final = ("operator/dovetail_operator/controller/event_handlers.py", "Changes.job_changed")
_CYCLE: Final = ("operator/dovetail_operator/queue/loop.py", "SchedulingLoop._run_cycle")
_RECONCILE: Final = ("operator/dovetail_operator/controller/reconciler.py", "Reconciler.reconcile")
# A cycle's iterator runs in a greenlet of its own, with no caller.
_VERDICTS: Final = ("operator/dovetail_operator/queue/time_slices.py", "Pausable.over.<locals>.work")
_VERB: Final = ("scheduler_extender/dovetail_extender/server.py", "Verbs.filter")

JOURNEYS: Final = (
    Journey(name="filter", test=_NAMED, begins=frozenset({_VERB}), passes=1),
    Journey(name="event to status", test=_REFUSED, begins=frozenset({_EVENT, _CYCLE, _VERDICTS, _RECONCILE})),
    Journey(name="its event", test=_REFUSED, begins=frozenset({_EVENT})),
    Journey(name="its cycles", test=_REFUSED, begins=frozenset({_CYCLE, _VERDICTS})),
    Journey(name="its reconciles", test=_REFUSED, begins=frozenset({_RECONCILE})),
)


@dataclass(slots=True)
class Taken:
    """What a journey passes: the functions of each module, in the order of their first call, and the calls."""

    functions: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    calls: int = 0


class Recorder:
    """A pytest plugin that records the journeys of the tests that it sees."""

    def __init__(self, journeys: Sequence[Journey]) -> None:
        self.taken = {journey.name: Taken() for journey in journeys}
        self._journeys = journeys

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Record the test alone, without its fixtures."""
        ways = [_Way(each, taken=self.taken[each.name]) for each in self._journeys if each.test == item.nodeid]
        with _profiled(ways):
            yield


class _Way:
    """One journey while its test runs."""

    def __init__(self, journey: Journey, *, taken: Taken) -> None:
        self._journey = journey
        self._taken = taken
        # Kept until the end, so that no other frame has the identity of one of them.
        self._begun: list[FrameType] = []

    def called(self, frame: FrameType, *, path: str) -> None:
        """Record a call of the product, if a function that begins the journey is among its callers."""
        if (path, frame.f_code.co_qualname) in self._journey.begins and all(frame is not each for each in self._begun):
            self._begun.append(frame)
        if not self._is_on_the_way(frame):
            return
        self._taken.calls += 1
        self._taken.functions[path][frame.f_code.co_qualname] = None

    def _is_on_the_way(self, frame: FrameType) -> bool:
        passes = self._journey.passes
        counted = self._begun if passes is None else self._begun[passes - 1 : passes]
        caller: FrameType | None = frame
        while caller is not None and all(caller is not each for each in counted):
            caller = caller.f_back
        return caller is not None


@contextmanager
def _profiled(ways: Sequence[_Way]) -> Iterator[None]:
    paths: dict[str, str | None] = {}

    def profile(frame: FrameType, *event: Any) -> None:
        if event[0] != "call":
            return
        name = frame.f_code.co_filename
        if name not in paths:
            paths[name] = _product_path(name)
        if (path := paths[name]) is None:
            return
        for way in ways:
            way.called(frame, path=path)

    if not ways:
        yield
        return
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def _product_path(name: str) -> str | None:
    path = Path(name)
    if not path.is_relative_to(ROOT):
        return None
    inner = path.relative_to(ROOT)
    return str(inner) if inner.parts[0] in PARTS else None


def record(journeys: Sequence[Journey] = JOURNEYS) -> Mapping[str, Taken]:
    """Run the tests of `journeys` in this process. Raises `RuntimeError` if one fails or takes no such way."""
    recorder = Recorder(journeys)
    tests = dict.fromkeys(journey.test for journey in journeys)
    if pytest.main(["-q", "--no-header", "-o", "addopts=", "-p", "no:cacheprovider", *tests], plugins=[recorder]):
        raise RuntimeError("the test of a journey fails")
    if missing := [name for name, taken in recorder.taken.items() if not taken.calls]:
        raise RuntimeError(f"no test begins the journey {missing[0]!r}: its first function has another name")
    return recorder.taken


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each journey."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--modules", action="store_true", help="name the modules of each journey")
    options.add_argument("--json", type=Path, help="write the number of modules of each journey to this file")
    args = options.parse_args(arguments)
    taken = record()
    print("| journey | modules | functions | calls |\n|---|---|---|---|")
    for name, way in taken.items():
        print(f"| {name} | {len(way.functions)} | {sum(map(len, way.functions.values()))} | {way.calls} |")
        if args.modules:
            for path, functions in way.functions.items():
                print(f"    {path}: {', '.join(functions)}")
    if args.json:
        args.json.write_text(json.dumps({name: len(way.functions) for name, way in taken.items()}), encoding="utf-8")


if __name__ == "__main__":
    main()
