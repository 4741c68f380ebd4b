"""Commands on several objects, of which one is refused or lost: the others are changed, and each is said."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from dovetail.api.conversion import values_of
from dovetail.query.jobs import selection
from dovetail_cli.cluster import several
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import cancel, update
from dovetail_cli.nodes import cordon, quota_changes
from dovetail_cli.ui.errors import CommandError, MissingError, NoConnectionError, UsageError
from tests.cli.builders import make_job
from tests.cli.nodes.test_cordon import listed, node, wire
from tests.core.kube.api import Answer, Api, refusal

JOBS: Final = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
NODES: Final = "/apis/dovetail.dev/v1beta1/gpunodes"
QUOTAS: Final = "/apis/dovetail.dev/v1beta1/gpuquotas"
NAMES: Final = ("a", "b", "c")
# What becomes of the write, the class of the error, and what it says.
FAILURES: Final = {
    "forbidden": (refusal(403, reason="Forbidden", message="you may not"), CommandError, "you may not"),
    "invalid": (refusal(422, reason="Invalid", message="no such priority"), CommandError, "no such priority"),
    "a failure": (refusal(500, message="etcd is away"), CommandError, "etcd is away"),
    "cut off": (Answer(drop=True), NoConnectionError, "cannot reach the API server"),
}  # fmt: skip
Typed = Callable[[Cluster], Awaitable[Any]]


def jobs(api: Api, *, failing: str, answer: Answer) -> None:
    items = [values_of(make_job(name, number=at, phase="Queued")) for at, name in enumerate(NAMES, start=1)]
    api.answer(f"GET {JOBS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": items}))
    for name, item in zip(NAMES, items, strict=True):
        api.answer(f"PATCH {JOBS}/{name}", answer if name == failing else Answer(body=item))


def nodes(api: Api, *, failing: str, answer: Answer) -> None:
    api.answer(f"GET {NODES}", listed(*map(node, NAMES)))
    for name in NAMES:
        api.answer(f"PATCH {NODES}/{name}", answer if name == failing else wire(node(name)))


def quotas(api: Api, *, failing: str, answer: Answer) -> None:
    for name in NAMES:
        api.answer(f"GET {QUOTAS}/{name}", Answer(body={"metadata": {"name": name}, "spec": {}}))
        api.answer(f"DELETE {QUOTAS}/{name}", answer if name == failing else Answer(body={}))


def typed(command: str, *, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Awaitable[Any]:
    """The command's own coroutine, which it hands to `work`."""
    taken: list[Typed] = []
    wanted = selection.parse_ids(["1-3"], field="JOB")
    options = {"kubeconfig": None, "context": None}
    for module in (update, quota_changes):
        monkeypatch.setattr(module, "work", lambda task, **_: taken.append(task) or ((), ()))
    match command:
        case "gcancel":
            return cancel.cancel_those(cluster, wanted=wanted, dry_run=False)
        case "gjob hold":
            update.change(["1-3"], fields={"suspend": True}, done="held", namespace=None, **options)  # type: ignore[arg-type]
        case "cordon":
            return cordon.cordon(cluster, words=["a:0", "b:0", "c:0"], wish=cordon.Wish(cordoned=True))
        case "quota delete":
            quota_changes.delete(NAMES, **options)  # type: ignore[arg-type]
    return taken[0](cluster)


COMMANDS: Final = {
    "gcancel": (jobs, "PATCH", JOBS, {"a": "Job 1 cancelled.", "b": "Job 2 cancelled.", "c": "Job 3 cancelled."}),
    "gjob hold": (jobs, "PATCH", JOBS, {"a": "Job 1 held.", "b": "Job 2 held.", "c": "Job 3 held."}),
    "cordon": (nodes, "PATCH", NODES, {name: f"{name}:0 (GPU-{name}-0) cordoned" for name in NAMES}),
    "quota delete": (quotas, "DELETE", QUOTAS, {name: f"GPUQuota {name} deleted" for name in NAMES}),
}  # fmt: skip


@pytest.mark.parametrize("failing", NAMES)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("command", COMMANDS)
async def test_one_that_fails_keeps_no_other_from_being_changed_and_said(
    api: Api,
    cluster: Cluster,
    command: str,
    failure: str,
    failing: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare, verb, path, says = COMMANDS[command]
    answer, kind, problem = FAILURES[failure]
    prepare(api, failing=failing, answer=answer)
    error: Exception | None = None
    found: Any = None
    try:
        found = await typed(command, cluster=cluster, monkeypatch=monkeypatch)
    except CommandError as caught:
        error = caught
    # gjob gives what was refused to the end of the command, which makes one error of it.
    refused = str(error) if error is not None else "; ".join(found[0])
    said = f"{capsys.readouterr().out}; {refused}"
    assert type(error) is (kind if command != "gjob hold" else type(None))
    assert [len(api.of(f"{verb} {path}/{name}")) for name in NAMES] == [1, 1, 1]
    for name, sentence in says.items():
        assert (sentence in said) is (name != failing)
    assert problem in refused
    called = {"gcancel": "Job ", "gjob hold": "Job ", "cordon": "GPUNode ", "quota delete": "GPUQuota "}[command]
    number = str(NAMES.index(failing) + 1)
    assert f"{called}{number if called == 'Job ' else failing}: " in refused


async def test_the_exit_code_is_that_of_the_first_failure_and_each_is_said() -> None:
    async def done() -> int:
        return 1

    async def fails(error: Exception) -> int:
        raise error

    errors = (MissingError("a is not there"), CommandError("b is refused"), UsageError("c is wrong"))
    for first, second in itertools.permutations(errors, 2):
        found, error = await several.each({"x": done(), "one": fails(first), "y": done(), "two": fails(second)})
        assert found == {"x": 1, "y": 1}
        assert type(error) is type(first)
        assert str(error) == f"one: {first}; two: {second}"
    assert await several.each({"x": done()}) == ({"x": 1}, None)
