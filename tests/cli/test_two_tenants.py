"""The commands on the cluster of two tenants whose objects have the same names, as a user who may see and change both.

A command that works in a namespace shows and changes what is there, and nothing of the twin in the other one.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from dovetail_cli.app import run
from tests.gateway.api_server import User
from tests.gateway.canary.cluster import fill
from tests.gateway.canary.objects import ONE, TENANTS, TWO, Tenant
from tests.gateway.canary.rbac import Act, RbacApiServer

KUBECONFIG: Final = """
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: test, namespace: {namespace}}}}}]
clusters: [{{name: test, cluster: {{server: "{url}"}}}}]
users: [{{name: test, user: {{token: admin-token}}}}]
"""
LISTS: Final = {
    "gpujobs": "/apis/dovetail.dev/v1beta1/namespaces/{namespace}/gpujobs",
    "pods": "/api/v1/namespaces/{namespace}/pods",
}
# What shows the objects of a namespace; each of these says something of the tenant.
READS: Final = (
    ("gqueue", "-o", "json"),
    ("gqueue", "-f", "JOBID,NAME,USER,ST,NODELIST(REASON)"),
    ("gjob", "show", "waits"),
    ("gjob", "show", "-o", "json", "done"),
    ("gjob", "events", "waits"),
    ("gjob", "log", "train"),
)
# What changes a job of a namespace, and what of its spec is otherwise then.
CHANGES: Final[tuple[tuple[tuple[str, ...], str, dict[str, Any]], ...]] = (
    (("gcancel", "waits"), "waits", {"cancel": True}),
    (("gjob", "hold", "waits"), "waits", {"suspend": True}),
    (("gjob", "release", "waits"), "waits", {"suspend": False}),
    (("gjob", "update", "-p", "77", "waits"), "waits", {"priority": 77}),
    (("gjob", "update", "--group", "team", "waits"), "waits", {"group": "team"}),
)


class Server(RbacApiServer):
    """That of the canary cluster, which commands also ask for the objects of one namespace."""

    def add_to(self, app: web.Application) -> None:
        for kind, path in LISTS.items():
            app.router.add_get(path, self._in_namespace(kind))
        super().add_to(app)

    def allows(self, user: User, act: Act) -> bool:
        """Its only user here reads everything, such as pods."""
        return act.verb in {"get", "list", "watch"} or super().allows(user, act)

    def _in_namespace(self, kind: str) -> Any:
        async def serve(request: web.Request) -> web.Response:
            wanted = request.match_info["namespace"]
            labels = dict(part.split("=") for part in request.query.get("labelSelector", "").split(",") if part)
            items = [
                each
                for each in self.objects[kind].values()
                if each["metadata"]["namespace"] == wanted
                and labels.items() <= each["metadata"].get("labels", {}).items()
            ]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

        return serve


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server().running() as made:
        fill(made)
        yield made


@pytest.fixture(params=TENANTS, ids=lambda tenant: tenant.word)
def tenant(request: pytest.FixtureRequest) -> Tenant:
    found: Tenant = request.param
    return found


async def typed(words: tuple[str, ...], *, server: Server, namespace: str, folder: Path, by_option: bool = True) -> int:
    """The exit code of a command in a namespace: the option's, or else that of the kubeconfig."""
    file = folder / "kubeconfig"
    other = "default" if by_option else namespace
    file.write_text(KUBECONFIG.format(url=server.connection.server, namespace=other))
    options = ["--kubeconfig", str(file), *(["--namespace", namespace] if by_option else [])]
    name, *rest = words
    at = 1 if name in {"gjob", "explain"} else 0
    arguments = [*rest[:at], *options, *rest[at:]]
    return await asyncio.to_thread(run, name, arguments=arguments, prog=name)


def other_than(tenant: Tenant) -> Tenant:
    return TWO if tenant is ONE else ONE


@pytest.mark.parametrize("by_option", [True, False], ids=["option", "kubeconfig"])
@pytest.mark.parametrize("words", READS, ids=" ".join)
async def test_what_a_command_shows_is_of_its_namespace(
    server: Server,
    tenant: Tenant,
    words: tuple[str, ...],
    by_option: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = await typed(words, server=server, namespace=tenant.namespace, folder=tmp_path, by_option=by_option)
    said = capsys.readouterr()
    assert code == 0, said.err
    assert tenant.word in said.out
    assert other_than(tenant).word not in said.out + said.err


@pytest.mark.parametrize(("words", "job", "expected"), CHANGES)
async def test_what_a_command_changes_is_of_its_namespace(
    server: Server,
    tenant: Tenant,
    words: tuple[str, ...],
    job: str,
    expected: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, key = copy.deepcopy(server.objects["gpujobs"]), f"{tenant.namespace}/{job}"
    server.requests.clear()
    assert await typed(words, server=server, namespace=tenant.namespace, folder=tmp_path) == 0, capsys.readouterr().err
    writes = [(verb, subject) for _, verb, subject in server.requests if verb not in {"get", "list", "watch"}]
    assert writes == [("patch", key)]
    after = server.objects["gpujobs"]
    assert {name for name, found in after.items() if found["spec"] != before[name]["spec"]} == {key}
    assert after[key]["spec"] == {**before[key]["spec"], **expected}


@pytest.mark.parametrize(
    "words", [("gcancel", "done"), ("gjob", "hold", "done"), ("gjob", "update", "-p", "1", "failed")]
)
async def test_a_job_that_has_ended_is_not_changed_and_that_is_said_once(
    server: Server, tenant: Tenant, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.requests.clear()
    await typed(words, server=server, namespace=tenant.namespace, folder=tmp_path)
    said = capsys.readouterr()
    # gcancel reports on each job; what another command cannot do is an error alone.
    where, elsewhere = (said.out, said.err) if words[0] == "gcancel" else (said.err, said.out)
    assert "has ended already" in where
    assert "has ended already" not in elsewhere
    assert not [verb for _, verb, _ in server.requests if verb not in {"get", "list", "watch"}]


@pytest.mark.parametrize("subject", ["waits", "number"])
async def test_an_explanation_is_of_the_job_of_its_namespace(
    server: Server, tenant: Tenant, subject: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = server.objects["gpujobs"][f"{tenant.namespace}/waits"]["status"]
    word = subject if subject == "waits" else str(status["number"])
    words = ("explain", "job", word, "-o", "json")
    code = await typed(words, server=server, namespace=tenant.namespace, folder=tmp_path)
    said = capsys.readouterr()
    assert code == 0, said.err
    found = json.loads(said.out)
    told = (found["kind"], found["namespace"], found["name"], found["number"])
    assert told == ("GPUJob", tenant.namespace, "waits", status["number"])


@pytest.mark.parametrize("words", [("gjob", "show"), ("gjob", "hold"), ("gcancel",), ("explain", "job")], ids=" ".join)
async def test_a_number_of_another_namespace_is_missing(
    server: Server, tenant: Tenant, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = server.objects["gpujobs"][f"{other_than(tenant).namespace}/waits"]["status"]["number"]
    before = copy.deepcopy(server.objects["gpujobs"])
    code = await typed((*words, str(theirs)), server=server, namespace=tenant.namespace, folder=tmp_path)
    assert (code, f"no job {theirs}" in capsys.readouterr().err) == (3, True)
    assert server.objects["gpujobs"] == before


class Program:
    """kubectl, of which only the words are kept."""

    def __init__(self) -> None:
        self.words: tuple[str, ...] = ()

    def become(self, *words: str) -> None:
        self.words = words


@pytest.mark.parametrize("phase", ["Running", "Pending", "Succeeded", "Failed"])
async def test_a_shell_is_in_the_pod_of_its_namespace_while_that_runs(
    server: Server,
    tenant: Tenant,
    phase: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program()
    monkeypatch.setattr("dovetail_cli.cluster.kubectl.find", lambda **_: program)
    for pod in server.objects["pods"].values():
        pod["status"] = {"phase": phase}
    code = await typed(("gjob", "attach", "train"), server=server, namespace=tenant.namespace, folder=tmp_path)
    if phase == "Running":
        assert code == 0
        at = program.words.index("-n")
        assert program.words[at + 1] == tenant.namespace
        assert program.words[at + 2].startswith("train")
    else:
        assert (code, program.words) == (1, ())
        assert "worker 0 of job train does not run" in capsys.readouterr().err
