"""`dovetail quota set` and `delete`."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dovetail.api.conversion import values_of
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail.query.quotas.changes import changed, patch_of
from dovetail.queue.quota_tree.tree_builder import tree_of
from dovetail_cli import app
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.nodes import quota_changes
from dovetail_cli.ui.errors import UsageError
from tests.cli.builders import make_quota
from tests.cli.ui.test_live_screen import KUBECONFIG
from tests.core.kube.api import Answer, Api, refusal
from tests.world.http import HttpServer, MemorySession, Weather

NOTHING: dict[str, Any] = {"lists": {}, "amounts": {}, "per": None, "preemption_policy": None}


def test_options_become_fields_and_none_lifts_a_limit() -> None:
    assert quota_changes.read(
        lists={"--namespaces": "a, b", "--users": "all", "--pools": None},
        amounts={"--gpus": "8", "--running-jobs": "none", "--queued-jobs": None, "--max-priority": "255"},
        per="namespace",
        preemption_policy="never",
    ) == {
        "namespaces": ["a", "b"],
        "users": [],
        "limit": {"gpus": 8, "runningJobs": None},
        "maxPriority": 255,
        "per": "Namespace",
        "preemptionPolicy": "Never",
    }


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "say what to set, such as --gpus 8"),
        ({"amounts": {"--gpus": "many"}}, '--gpus "many": write a whole number from 0 to 1000000, such as --gpus 8'),
        ({"amounts": {"--shares": "0"}}, "write a whole number from 1 to 10000"),
        ({"amounts": {"--max-priority": "256"}}, "write a whole number from 0 to 255"),
        ({"lists": {"--namespaces": "a,,b"}}, '--namespaces "a,,b": write names separated by commas'),
        ({"per": "team"}, '--per "team": allowed are Together, Namespace, User'),
        (
            {"preemption_policy": "no"},
            '--preemption-policy "no": allowed are PreemptLowerPriority, Never',
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_option(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        quota_changes.read(**NOTHING | given)
    assert problem in str(refused.value)


def test_the_answer_says_what_is_limited_and_for_whom() -> None:
    whom = {"namespaces": ["a"], "users": ["u"], "per": "User", "pools": ["x"]}
    quota = make_quota(**whom, limit={"gpus": 8}, maxPriority=5, preemptionPolicy="Never")
    said = quota_changes._limits_of(quota)
    assert said == "gpus 8, max-priority 5, no preemption, for a and u, each user by itself, nodes of x."
    assert quota_changes._limits_of(make_quota()) == "no limits, for everyone."


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"parent": "c"}, "--parent c: the parents would form a circle (a > c > b > a)"),
        ({"parent": "a"}, "GPUQuota a: spec.parent a: must be another quota (the path would be a > a)"),
        ({"parent": "gone"}, "--parent gone: there is no such GPUQuota: create it first"),
        ({"parent": "each"}, "--parent each: it counts each user by itself (per), so it can be no parent"),
        (
            {"guaranteed": {"gpus": 5}},
            "GPUQuota a: spec.guaranteed.gpus 5: must not be above the limit of 4 GPUs: raise the limit or",
        ),
    ],
)
def test_a_contradiction_is_refused_before_anything_is_written(spec: dict[str, Any], problem: str) -> None:
    known = {
        each.metadata.name: each
        for each in (
            make_quota("a", limit={"gpus": 4}),
            make_quota("b", parent="a"),
            make_quota("c", parent="b"),
            make_quota("each", per="User"),
        )
    }
    wanted = changed("a", before=known["a"], patch=spec)
    with pytest.raises(UsageError) as refused:
        quota_changes.check(wanted, others=known)
    assert problem in str(refused.value)


def test_a_parent_that_was_deleted_forbids_no_other_change() -> None:
    known = {"a": make_quota("a", parent="gone")}
    wanted = changed("a", before=known["a"], patch={"limit": {"runningJobs": 3}})
    quota_changes.check(wanted, others=known)
    assert (wanted.spec.parent, wanted.spec.limits.running_jobs) == ("gone", 3)


@pytest.mark.parametrize(
    "spec", [{"limit": {"gpus": 4, "memory": "64Gi"}}, {"limit": {"memory": "64Gi"}}, {"limit": {"gpus": 4}}, {}]
)
def test_a_new_limit_of_gpus_leaves_the_other_amounts(spec: dict[str, Any]) -> None:
    before = make_quota("a", **spec)
    after = changed("a", before=before, patch={"limit": {"gpus": 8}}).spec.limits
    assert (after.gpus, after.memory) == (8, before.spec.limits.memory)


def test_none_lifts_a_limit_and_leaves_the_other_amounts() -> None:
    before = make_quota("a", limit={"gpus": 4, "memory": "64Gi"})
    patch = patch_of(before, changes={"limit": {"gpus": None}})
    after = changed("a", before=before, patch=patch).spec.limits
    assert (patch, after.gpus, after.memory) == ({"limit": {"gpus": None}}, None, "64Gi")


@pytest.mark.parametrize(
    ("guaranteed", "patch", "said"),
    [
        ({"gpus": 4, "memory": "64Gi"}, {"gpus": None}, "guaranteed memory 64Gi, for everyone."),
        ({"gpus": 4, "models": {"A100": 2}}, {"gpus": None}, "guaranteed A100 2, for everyone."),
        ({"gpus": 4}, None, "no limits, for everyone."),
    ],
)
def test_none_lifts_a_guarantee_of_gpus_and_leaves_those_of_memory_and_models(
    guaranteed: dict[str, Any], patch: dict[str, Any] | None, said: str
) -> None:
    before = make_quota("a", guaranteed=guaranteed)
    found = patch_of(before, changes={"guaranteed": {"gpus": None}})
    assert found == {"guaranteed": patch}
    assert quota_changes._limits_of(changed("a", before=before, patch=found)) == said


def test_two_words_are_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["quota", "set", "Vision", "--gpus", "8"]) == 2
    assert capsys.readouterr().err.startswith('dovetail: NAME "Vision": write up to')
    assert app.main(["quota", "set", "--help"]) == 0
    assert "Usage: dovetail quota set" in capsys.readouterr().out


QUOTAS = "/apis/dovetail.dev/v1beta1/gpuquotas"


@pytest.fixture
def kubeconfig(api: Api, tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=api.url))
    return str(file)


async def test_a_misspelt_quota_deletes_none_of_the_others(api: Api, kubeconfig: str) -> None:
    api.answer(f"GET {QUOTAS}/one", Answer(body=values_of(make_quota("one"))))
    api.answer(f"GET {QUOTAS}/tow", refusal(404, message='gpuquotas "tow" not found'))
    with pytest.raises(NotFound, match="tow"):
        await asyncio.to_thread(quota_changes.delete, ["one", "tow"], kubeconfig=kubeconfig, context=None)
    assert [seen.method for seen in api.seen] == ["GET", "GET"]


async def test_each_quota_that_was_deleted_is_named(api: Api, kubeconfig: str) -> None:
    for name in ("one", "two"):
        api.answer(f"GET {QUOTAS}/{name}", Answer(body=values_of(make_quota(name))))
        api.answer(f"DELETE {QUOTAS}/{name}", Answer(body={}))
    said = await asyncio.to_thread(quota_changes.delete, ["one", "two"], kubeconfig=kubeconfig, context=None)
    assert said == "GPUQuota one deleted.\nGPUQuota two deleted."


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_quota_is_changed_where_it_is_and_created_where_it_is_not(
    api: Api, kubeconfig: str, is_known: bool
) -> None:
    made = make_quota("q", limit={"gpus": 8})
    known = [values_of(make_quota("q", limit={"gpus": 4}))] if is_known else []
    api.answer(f"GET {QUOTAS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": known}))
    api.answer(f"PATCH {QUOTAS}/q", Answer(body=values_of(made)))
    api.answer(f"POST {QUOTAS}", Answer(body=values_of(made)))
    said = await asyncio.to_thread(
        quota_changes.apply, "q", changes={"limit": {"gpus": 8}}, kubeconfig=kubeconfig, context=None
    )
    assert said == f"GPUQuota q {'changed' if is_known else 'created'}: gpus 8, for everyone."
    last = api.seen[-1]
    if is_known:
        assert (last.method, last.body) == ("PATCH", {"spec": {"limit": {"gpus": 8}}})
    else:
        assert (last.method, last.body["metadata"], last.body["spec"]["limit"]) == ("POST", {"name": "q"}, {"gpus": 8})


async def test_a_change_is_checked_together_with_what_stays(api: Api, kubeconfig: str) -> None:
    known = [values_of(make_quota("q", limit={"gpus": 4}))]
    api.answer(f"GET {QUOTAS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": known}))
    with pytest.raises(UsageError, match="must not be above the limit of 4 GPUs"):
        await asyncio.to_thread(
            quota_changes.apply, "q", changes={"guaranteed": {"gpus": 5}}, kubeconfig=kubeconfig, context=None
        )
    assert [each.method for each in api.seen] == ["GET"], "nothing is written"


class Commands:
    """The commands on an API server in memory, whose quotas others change too."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.server = HttpServer(lambda: "2026-01-01T12:00:00Z", kinds=frozenset({"gpuquotas"}))

    def work(self, task: Callable[[Cluster], Awaitable[str]], **_options: Any) -> str:
        async def go() -> str:
            session = MemorySession(self.server, weather=Weather(), died=lambda: None)
            async with Client(Connection(server="http://memory"), make_session=lambda _connection: session) as client:
                return await task(Cluster(client=client, namespace="default"))

        return asyncio.run(go())

    def set_quota(self) -> str | None:
        """One change by the command. None if it is refused."""
        amounts = {
            option: self.rng.choice([None, None, "none", "2", "6"]) for option in ("--gpus", "--guaranteed", "--shares")
        }
        parent = self.rng.choice([None, "none", "a", "b", "c"])
        try:
            changes = quota_changes.read(
                lists={"--namespaces": self.rng.choice(["x", "y", "all"])}, amounts=amounts, per=None,
                preemption_policy=None, parent=parent,
            )  # fmt: skip
            return quota_changes.apply(self.rng.choice("abc"), changes=changes, kubeconfig=None, context=None)
        except UsageError:
            return None

    def interfere(self) -> None:
        """Others delete a quota, or guarantee more than its parent has."""
        name = self.rng.choice("abc")
        if self.server.find("gpuquotas", name) is None:
            return
        if self.rng.random() < 0.5:
            self.server.delete("gpuquotas", name)
        else:
            self.server.change("gpuquotas", name, lambda quota: quota["spec"].update(guaranteed={"gpus": 9}))


@pytest.mark.parametrize("seed", range(6))
def test_after_each_change_the_contradictions_are_those_of_the_quotas_as_they_are(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, said, contradictions = Commands(seed), 0, 0
    monkeypatch.setattr(quota_changes, "work", commands.work)
    for _ in range(40):
        answer = commands.set_quota()
        if answer is not None:
            said += 1
            found = [f"{each.message}." for each in tree_of(commands.server.typed("gpuquotas")).findings]
            assert answer.splitlines()[1:] == found
            contradictions += len(found)
        if commands.rng.random() < 0.3:
            commands.interfere()
    assert (said > 5, contradictions > 0) == (True, True)
