"""An argument that is called like a value at hand gets that value: `since=until` is a mistake, or has its reason here.

Functions take their parameters by keyword, so that each name is written at both ends. Of nine thousand such
arguments, these have another value on purpose.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    "core", "gateway", "cli", "operator", "scheduler_extender", "node_agent", "local_node", "admission_webhook",
    "sandbox",
)  # fmt: skip
# By module and function: the argument, and what it gets.
ON_PURPOSE: Final = {
    "admission_webhook/dovetail_certificates/extender.py plan_authorities": {"current=stored.next"},
    "admission_webhook/dovetail_certificates/main.py targets": {
        "names=args.extender_names",
        "secret=args.extender_secret",
    },
    "cli/dovetail_cli/commands/gbatch.py gbatch": {"env=conda_env"},
    "cli/dovetail_cli/submit/submit.py _prepared": {"asked=self.local"},
    # Fewest workers of an elastic job.
    "core/dovetail/engine/gang/in_domains.py place": {"least=self.workers"},
    "core/dovetail/engine/gang/placement.py _place_anywhere": {"workers=least"},
    "core/dovetail/engine/gang/placement.py _place_apart": {"workers=least"},
    "core/dovetail/queue/preemption/reclaim.py owner": {"workers=job.least"},
    "core/dovetail/engine/filter/single_node.py devices": {"node=self.name"},
    "core/dovetail/query/plan.py drains": {"node=use.name"},
    "core/dovetail/query/queue_view.py start_of": {"asked=counted"},
    "core/dovetail/queue/moves/movable.py movable_of": {"job=candidate"},
    "core/dovetail/simulator/experiment.py run": {"policy=name"},
    # A cycle has the keys of the jobs that wait.
    "operator/dovetail_operator/queue/cycle.py _verdicts": {"waiting=cycle.keys"},
    "operator/dovetail_operator/queue/start_estimates.py estimates": {"waiting=cycle.keys"},
    "operator/dovetail_operator/queue/replacements.py replacement_of": {"job=candidate"},
    "operator/dovetail_operator/watchers/guests/keeper.py _grow": {"of=found.key"},
    "operator/dovetail_operator/writes/jobs.py create_job": {"manifest=action.service"},
    "scheduler_extender/dovetail_extender/protocol.py read_filter_args": {"nodes=args.node_names"},
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def found_in(function: _Function) -> Iterator[str]:
    """The arguments with another value than the one of their name that the function has too."""
    taken = function.args
    parameters = {each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
    inside = list(ast.walk(function))
    attributes = {ast.unparse(each) for each in inside if isinstance(each, ast.Attribute)}
    for call in inside:
        for keyword in call.keywords if isinstance(call, ast.Call) else ():
            name, value = keyword.arg, keyword.value
            if isinstance(value, ast.Name):
                is_other = value.id != name and {name, value.id} <= parameters
            elif isinstance(value, ast.Attribute):
                is_other = value.attr != name and f"{ast.unparse(value.value)}.{name}" in attributes
            else:
                is_other = False
            if is_other:
                yield f"{name}={ast.unparse(value)}"


def test_an_argument_gets_the_value_that_is_called_like_it() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(each for package in PACKAGES for each in (ROOT / package).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, _Function) and (others := set(found_in(function))):
                found.setdefault(f"{path.relative_to(ROOT)} {function.name}", set()).update(others)
    assert found == ON_PURPOSE


def test_a_swapped_argument_is_seen() -> None:
    (function,) = ast.parse("def f(since, until, of):\n    return g(since=until, until=of.since, x=of.until)\n").body
    assert isinstance(function, ast.FunctionDef)
    assert list(found_in(function)) == ["since=until", "until=of.since"]
