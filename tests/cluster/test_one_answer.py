"""To each question, REST v3, the SDK and the commands with `-o json` give one answer, of the schema in openapi.json."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import jsonschema_rs
import msgspec
import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUQUOTAS
from dovetail.kube.client import Client
from dovetail.sdk import AsyncClient
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs
from tests.cluster.tenants import token_of
from tests.cluster.test_cli import Shell, main_output, shell

pytestmark = pytest.mark.cluster

__all__ = ["shell"]

SCHEMA: Final = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text(encoding="utf-8"))
# What a clock or a new measurement changes between two looks.
_MOVING: Final = {
    "usedMiB", "utilization", "temperatureCelsius", "powerWatts", "measuredAt", "observedAt", "estimatedStart",
    "earliest", "latest", "asOf", "gpuSeconds", "memoryUsedMiB", "seconds", "stale", "time",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, and where each face answers it."""

    # The path below /api/v3, and a part of its answer that the others give too.
    path: str
    part: str = ""
    # The schema of the answer in openapi.json.
    schema: str
    # The words of the command after `-o json`; None where no command asks.
    command: tuple[str, ...] | None = None
    sdk: Callable[[AsyncClient, str], Any]
    body: Callable[[str], Any] | None = None
    # What follows the command's options.
    words: tuple[str, ...] = ()
    # What a command's answer has beside the part.
    of_command: str = ""


async def listed(rows: AsyncIterator[Any]) -> list[Any]:
    return [row async for row in rows]


async def rows_of_jobs(client: AsyncClient, namespace: str) -> Any:
    return [job.row async for job in client.jobs(namespace=namespace)]


async def of_job(client: AsyncClient, namespace: str, *, ask: str) -> Any:
    return await getattr(await client.job("waits", namespace=namespace), ask)()


async def effects(client: AsyncClient, namespace: str) -> Any:
    return await (await client.job("waits", namespace=namespace)).effects(cancel=True)


SPEC: Final = {"gpu": "4(V100)", "template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
QUESTIONS: Final = {
    "jobs": Question(
        path="jobs?namespace={namespace}", part="items", schema="JobList", command=("gqueue", "-a"), sdk=rows_of_jobs
    ),
    "nodes": Question(
        path="nodes",
        part="items",
        schema="NodeList",
        command=("ginfo",),
        of_command="nodes",
        sdk=lambda client, _: listed(client.nodes()),
    ),
    "quotas": Question(
        path="quotas", part="items", schema="QuotaList", command=("quota",), sdk=lambda client, _: client.quotas()
    ),
    "explain": Question(
        path="jobs/{namespace}/waits/explain",
        schema="Explanation",
        command=("explain", "job", "waits"),
        sdk=lambda client, namespace: of_job(client, namespace, ask="explain"),
    ),
    "events": Question(
        path="jobs/{namespace}/waits/events",
        part="items",
        schema="EventList",
        command=("gjob", "events", "waits"),
        of_command="items",
        sdk=lambda client, namespace: of_job(client, namespace, ask="events"),
    ),
    "dry run": Question(
        path="dry-run",
        schema="DryRun",
        sdk=lambda client, namespace: client.dry_run(spec=SPEC, namespace=namespace),
        body=lambda namespace: {"namespace": namespace, "spec": SPEC},
        command=("gbatch", "--dry-run", "--gpus", "4(V100)"),
        words=("true",),
    ),
    "effects": Question(
        path="jobs/{namespace}/waits/effects",
        schema="Effects",
        sdk=effects,
        body=lambda _: {"cancel": True},
    ),
    "plan": Question(
        path="plan?namespace={namespace}",
        part="items",
        schema="PlanPage",
        sdk=lambda client, namespace: listed(client.plan(namespace=namespace)),
    ),
    "right sizes": Question(
        path="right-sizes?namespace={namespace}",
        part="items",
        schema="RightSizePage",
        sdk=lambda client, namespace: listed(client.right_sizes(namespace=namespace)),
    ),
    "findings": Question(path="findings", schema="NodeFindings", sdk=lambda client, _: client.findings()),
    "doctor": Question(
        path="doctor?namespace={namespace}",
        schema="Diagnosis",
        command=("doctor",),
        sdk=lambda client, _: client.doctor(),
    ),
    "overview": Question(path="overview", schema="Overview", command=("top",), sdk=lambda client, _: client.overview()),
    "audit": Question(path="audit", schema="Audit", command=("audit",), sdk=lambda client, _: client.audit()),
    "history": Question(
        path="history?namespace={namespace}",
        part="items",
        schema="HistoryPage",
        sdk=lambda client, namespace: listed(client.history(namespace=namespace)),
    ),
}


@pytest.fixture
async def token(sandbox: Cluster) -> str:
    """The token of an administrator, who sees what the commands see."""
    return await token_of(sandbox)


def still(answer: Any) -> Any:
    """The answer without what moves."""
    if isinstance(answer, list):
        return [still(each) for each in answer]
    if isinstance(answer, dict):
        return {key: still(value) for key, value in answer.items() if key not in _MOVING}
    return answer


async def test_every_face_gives_the_same_answer(
    sandbox: Cluster, client: Client, shell: Shell, jobs: Jobs, token: str, subtests: pytest.Subtests
) -> None:
    quota = {"namespaces": [shell.namespace], "limit": {"gpus": 2}}
    await client.create(GPUQUOTAS, body={"metadata": {"name": shell.namespace}, "spec": quota}, as_type=GPUQuota)
    try:
        await jobs.submit("runs", gpu=2)
        await jobs.phase("Running", "runs")
        await jobs.submit("waits", gpu=1)
        url = sandbox.status().gateway
        async with AsyncClient(url, token=token, namespace=shell.namespace) as sdk:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await sdk.job("waits")).row.reason != "Quota":  # noqa: ASYNC110 - the gateway tells nobody
                    await asyncio.sleep(0.2)
            for name, question in QUESTIONS.items():
                with subtests.test(name=name):
                    await compare(question, sdk=sdk, shell=shell, url=url, token=token)
    finally:
        await client.delete(GPUQUOTAS, name=shell.namespace)


async def compare(question: Question, *, sdk: AsyncClient, shell: Shell, url: str, token: str) -> None:
    """The answers of each face until two looks agree: the cluster may change between them."""
    last = dict[str, Any]()
    try:
        await alike(question, sdk=sdk, shell=shell, url=url, token=token, last=last)
    except TimeoutError:
        assert last["sdk"] == last["rest"]
        assert last.get("command", last["rest"]) == last["rest"]
        raise


async def alike(
    question: Question, *, sdk: AsyncClient, shell: Shell, url: str, token: str, last: dict[str, Any]
) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            rest = await asked(question, url=url, token=token, namespace=shell.namespace)
            named = {"$ref": f"#/components/schemas/{question.schema}", "components": SCHEMA["components"]}
            jsonschema_rs.validate(named, rest)
            found = {
                "rest": rest[question.part] if question.part else rest,
                "sdk": msgspec.to_builtins(await question.sdk(sdk, shell.namespace)),
            }
            if question.command is not None:
                found["command"] = await commanded(question, shell=shell)
            first, *others = map(still, found.values())
            if all(other == first for other in others):
                return
            last.update(found)
            await asyncio.sleep(0.5)


async def asked(question: Question, *, url: str, token: str, namespace: str) -> Any:
    path = f"{url}/api/v3/{question.path.format(namespace=namespace)}"
    method, body = ("GET", None) if question.body is None else ("POST", question.body(namespace))
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, path, json=body) as response,
    ):
        assert response.status == 200, await response.text()
        return await response.json()


async def commanded(question: Question, *, shell: Shell) -> Any:
    assert question.command is not None
    words = [*question.command, "--kubeconfig", str(shell.kubeconfig), "-o", "json"]
    # A question about the whole cluster has no namespace.
    words += [] if question.command[0] in {"audit", "doctor", "quota"} else ["--namespace", shell.namespace]
    found = json.loads(await asyncio.to_thread(main_output, *words, *question.words))
    return found[question.of_command] if question.of_command else found
