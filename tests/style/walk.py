"""How much code one job's way from event to status passes in the operator.

`python -m tests.style.walk` runs one test of the controller and counts the modules, functions and return statements
that it passes from the GPUJob's event to its status: in the event handler, in the cycle and in the job's reconcile.
`--modules` names them.
"""

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[2]
OPERATOR: Final = str(ROOT / "operator" / "dovetail_operator")
TEST: Final = "tests/operator_/controller/test_controller.py::test_a_job_without_room_is_told_why_with_one_write"
# The functions by which each part of the way begins.
PARTS: Final = {
    ("controller/event_handlers.py", "job_changed"): "event",
    ("queue/loop.py", "_run_cycle"): "cycle",
    ("controller/reconciler.py", "reconcile"): "reconcile",
}

Tracer = Callable[[FrameType, str, Any], Any]


class Counts(NamedTuple):
    """What a part of the way passes."""

    modules: int
    functions: int
    returns: int


class Walk:
    """A pytest plugin that notes which lines of the operator a test runs, by part and file."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self) -> Any:
        """Trace the test alone, without its fixtures."""
        sys.settrace(self._trace)
        yield
        sys.settrace(None)

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> Tracer | None:
        part = _part_of(frame) if frame.f_code.co_filename.startswith(OPERATOR) else None
        if part is None:
            return None
        lines = self.lines[part][frame.f_code.co_filename]
        lines.add(frame.f_code.co_firstlineno)

        def trace_line(inner: FrameType, event: str, _argument: object) -> Tracer:
            if event == "line":
                lines.add(inner.f_lineno)
            return trace_line

        return trace_line


def _part_of(frame: FrameType) -> str | None:
    """The part of the way that a call belongs to: the innermost caller that begins one."""
    caller: FrameType | None = frame
    while caller is not None:
        path = caller.f_code.co_filename.removeprefix(f"{OPERATOR}/")
        if (part := PARTS.get((path, caller.f_code.co_name))) is not None:
            return part
        caller = caller.f_back
    return None


def counts_of(lines: dict[str, set[int]]) -> Counts:
    """Count modules, functions that began, and return statements that ran."""
    functions = returns = 0
    for path, seen in lines.items():
        for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += min([node.lineno, *(each.lineno for each in node.decorator_list)]) in seen
            returns += isinstance(node, ast.Return) and node.lineno in seen
    return Counts(modules=len(lines), functions=functions, returns=returns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table with a row for each part of the way."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--modules", action="store_true", help="name the modules of each part")
    args, walk = options.parse_args(arguments), Walk()
    if pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", TEST], plugins=[walk]):
        raise SystemExit("the test fails")
    print("| part | modules | functions | returns |\n|---|---|---|---|")
    for part, lines in walk.lines.items():
        print(f"| {part} | {' | '.join(map(str, counts_of(lines)))} |")
        if args.modules:
            print("  " + ", ".join(sorted(path.removeprefix(f"{OPERATOR}/") for path in lines)))


if __name__ == "__main__":
    main()
