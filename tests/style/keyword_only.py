"""Count the functions that take a second parameter by position: python -m tests.style.keyword_only."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.style import packages
from tests.style.packages import ROOT

PARTS: Final = sorted({name.split("/")[0] for name in packages.PARTS} | {"images", "tools"})
# What calls them passes values without names: a `Callable[[A, B], C]` has no names, and neither has `f(*values)`.
POSITIONAL: Final = {
    "handlers of events": {
        "_is_of_api",
        "_request_again",
        "failed",
        "_accept",
        "_failed",
        "_tried_again",
        "job_unreadable",
        "leave_out",
        "look",
        "noted",
        "report",
        "saw",
    },
    "programs": {"_extend", "_program", "_serve", "serve"},
    "values in a table": {
        "_amd",
        "_ascend",
        "_intel",
        "_nvml",
        "clause",
        "for_devices",
        "by_state",
        "find",
        "made",
        "process_samples",
        "tree",
    },
    "arguments": {
        "_all_placed",
        "_done",
        "_find_pools",
        "_find_terms",
        "_in_loop",
        "_note",
        "_place",
        "_said",
        "_settle",
        "_work",
        "always",
        "answer",
        "compute",
        "assumed_pod",
        "ignore",
        "may_resend",
        "may_retry",
        "train",
        "rename",
        "uid_of",
        "watch",
    },
    "called with *values": {"_column", "_condition", "_count", "_probe", "_with_blocked"},
    "methods of a library's class": {
        "_release",
        "call_tool",
        "find_spec",
        "handle_error",
        "mutate",
        "parse_args",
        "resolve_command",
    },
    "a request line": {"route"},
    "published signatures, as scripts call them": {
        "cleanup_gpu_resources",
        "create_pytorch_model_with_gpu",
        "create_tensorflow_model_with_gpu",
        "run_with_gpu",
        "suggest_batch_size",
        "train_algorithm",
        "validate_memory_requirement",
    },
}
# Constructors whose signature is published: scripts pass these values by position.
PUBLISHED: Final = {
    "core/dovetail/sdk/aio/tasks.py",
    "core/dovetail/sdk/blocking/tasks.py",
    "core/dovetail/sdk/scheduling/memory_guard.py",
    "core/dovetail/sdk/scheduling/scheduler.py",
}
_DECORATED: Final = (
    "command",
    "callback",
    "overload",
    "setter",
    "cache",
    "lru_cache",
    "field_validator",
    "model_validator",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, *, in_class: bool = False) -> Iterator[tuple[Function, bool]]:
    """Return each function below the tree, and whether it is a method."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield node, in_class
        yield from functions(
            node, in_class=isinstance(node, ast.ClassDef) or (in_class and not isinstance(node, Function))
        )


def takes_a_second_by_position(function: Function, *, method: bool) -> bool:
    """Say whether a caller could pass a second value without its name, and could as well name it."""
    marks = [ast.unparse(mark).split("(")[0].split(".")[-1] for mark in function.decorator_list]
    receivers = int(method and "staticmethod" not in marks)
    special = function.name.startswith("__") and function.name != "__init__"
    return (
        len(function.args.args) - receivers > 1
        and not (special or function.args.vararg or function.args.posonlyargs)
        and not any(mark in _DECORATED for mark in marks)
    )


def handles_events(name: str) -> bool:
    """Say whether a name is that of a handler of events, which gets the type and the object."""
    return name.endswith("_event") or name.lstrip("_").startswith("on_")


def found(folder: Path) -> dict[str, list[str]]:
    """Return the places of the functions below a folder that take a second parameter by position, by name."""
    places: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        if path.stem.endswith(("_pb2", "_grpc")):
            continue  # protoc wrote it
        for function, method in functions(ast.parse(path.read_text(encoding="utf-8"))):
            published = function.name == "__init__" and str(path.relative_to(ROOT)) in PUBLISHED
            if published or handles_events(function.name):
                continue
            if takes_a_second_by_position(function, method=method):
                places.setdefault(function.name, []).append(f"{path.relative_to(ROOT)}:{function.lineno}")
    return places


def share(folder: Path) -> tuple[int, int]:
    """Return how many functions with two or more parameters a folder has, and how many have the rest keyword-only."""
    total = kept = 0
    for path in folder.rglob("*.py"):
        for function, method in functions(ast.parse(path.read_text(encoding="utf-8"))):
            parameters = len(function.args.args) + len(function.args.kwonlyargs) - int(method)
            if parameters > 1:
                total += 1
                kept += not takes_a_second_by_position(function, method=method)
    return total, kept


if __name__ == "__main__":
    for part in PARTS:
        of, keyword_only = share(ROOT / part)
        print(f"{part:20} {keyword_only:5} of {of:5}  {keyword_only / of:4.0%}")
