"""`dovetail mcp` as an agent's program starts it: the protocol's own client, over standard input and output."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client as Agent
from mcp import StdioServerParameters

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail_sandbox.cluster import Cluster
from tests import commands
from tests.cluster.jobs import Jobs

pytestmark = pytest.mark.cluster

CHANGES = {"submit_job", "cancel_job", "change_job"}
READS = {
    "whoami", "list_jobs", "show_job", "read_log", "explain_job", "list_nodes", "list_quotas", "history",
    "preview_submit", "preview_cancel", "preview_change",
}  # fmt: skip


@dataclass(frozen=True)
class Tools:
    """The tools of one server."""

    agent: Agent

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer; the tool must do what it is asked."""
        answer = await self.agent.call_tool(tool, arguments)
        assert not answer.is_error, answer.content
        assert answer.structured_content is not None
        found: dict[str, Any] = answer.structured_content
        return found

    async def carried_out(self, kind: str, **arguments: Any) -> dict[str, Any]:
        """Preview and carry out, again as long as the job's status changes in between, as an agent does."""
        while True:
            preview = await self(f"preview_{kind}", **arguments)
            answer = await self.agent.call_tool(f"{kind}_job", {"preview_id": preview["preview_id"]})
            if not answer.is_error:
                return preview
            assert "has changed since the preview" in str(answer.content)

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The sentence of a refusal."""
        answer = await self.agent.call_tool(tool, arguments)
        assert answer.is_error
        return str(getattr(answer.content[0], "text", ""))


@asynccontextmanager
async def served(sandbox: Cluster, *, namespace: str, more: tuple[str, ...] = ()) -> AsyncIterator[Tools]:
    where = ["--kubeconfig", str(sandbox.kubeconfig), "--namespace", namespace, *more]
    (program,) = commands.dovetail()
    async with Agent(StdioServerParameters(command=program, args=["mcp", *where])) as agent:
        yield Tools(agent)


async def test_the_tools_say_which_of_them_change_something(sandbox: Cluster, namespace: str) -> None:
    async with served(sandbox, namespace=namespace) as tools:
        found = {each.name: each for each in (await tools.agent.list_tools()).tools}
        assert found.keys() == READS | CHANGES
        assert {name for name, each in found.items() if each.annotations and each.annotations.read_only_hint} == READS
        # Nothing but the id of a preview says what is done.
        assert all(set(found[name].input_schema["properties"]) == {"preview_id"} for name in CHANGES)


async def test_a_server_that_only_reads_offers_nothing_else(sandbox: Cluster, namespace: str) -> None:
    async with served(sandbox, namespace=namespace, more=("--read-only",)) as tools:
        assert not {each.name for each in (await tools.agent.list_tools()).tools} & CHANGES


async def test_an_agent_submits_explains_holds_and_cancels_by_previews(
    sandbox: Cluster, namespace: str, jobs: Jobs
) -> None:
    async with served(sandbox, namespace=namespace) as tools:
        preview = await tools("preview_submit", command=["sleep", "600"], gpus="1", name="train")
        assert (preview["outcome"], (await tools("list_jobs"))["items"]) == ("Starts", [])
        submitted = await tools("submit_job", preview_id=preview["preview_id"])
        assert (submitted["job"]["name"], submitted["job"]["request"]) == ("train", "1")
        await jobs.phase("Running", "train")
        assert (await tools("explain_job", job="train"))["state"] == "placed"
        await tools.carried_out("change", job="train", held=True)
        await jobs.phase("Suspended", "train")
        assert (await tools.carried_out("cancel", job="train"))["change"] == {"cancel": True}
        await jobs.phase("Cancelled", "train")
        assert [each["phase"] for each in (await tools("list_jobs", finished=True))["items"]] == ["Cancelled"]


async def test_a_job_that_changed_after_its_preview_stays_as_it_is(
    sandbox: Cluster, namespace: str, jobs: Jobs
) -> None:
    async with served(sandbox, namespace=namespace) as tools:
        await jobs.submit("x", suspend=True)
        await jobs.phase("Held", "x")
        cancel = await tools("preview_cancel", job="x")
        await jobs.change("x", priority=20)
        said = await tools.refused("cancel_job", preview_id=cancel["preview_id"])
        assert said == "job x has changed since the preview: preview_cancel shows it as it is now"
        assert not (await jobs.spec("x")).get("cancel")


async def test_a_job_that_could_never_start_is_submitted_only_if_its_preview_says_so(
    sandbox: Cluster, namespace: str, jobs: Jobs
) -> None:
    async with served(sandbox, namespace=namespace) as tools:
        hopeless = {"command": ["true"], "gpus": "2(V10)"}
        preview = await tools("preview_submit", **hopeless)
        assert preview["outcome"] == "Never"
        said = await tools.refused("submit_job", preview_id=preview["preview_id"])
        assert said.startswith("not queued, it could never start here: ")
        assert "To run it on the CPU: cpu_fallback." in said
        assert said.endswith(": wait_for_capacity")
        assert (await tools("preview_submit", cpu_fallback=True, **hopeless))["outcome"] == "Starts"
        preview = await tools("preview_submit", name="waits", wait_for_capacity=True, **hopeless)
        await tools("submit_job", preview_id=preview["preview_id"])
        await jobs.phase("Queued", "waits", reason="ExceedsCapacity")


async def test_a_job_of_the_same_name_is_another_job(sandbox: Cluster, namespace: str, jobs: Jobs) -> None:
    async with served(sandbox, namespace=namespace) as tools:
        await jobs.submit("x", suspend=True)
        await jobs.phase("Held", "x")
        cancel = await tools("preview_cancel", job="x")
        await jobs.clear()
        await jobs.submit("x", suspend=True)
        assert "has changed since the preview" in await tools.refused("cancel_job", preview_id=cancel["preview_id"])
        assert not (await jobs.spec("x")).get("cancel")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("preview_submit", {"command": []}, 'command: must name a program, such as ["python", "train.py"]'),
        ("preview_submit", {"command": ["true"], "gpus": "2("}, 'gpus "2(": a bracket is not closed'),
        ("preview_submit", {"command": [" "]}, 'command: must name a program, such as ["python", "train.py"]'),
        ("preview_submit", {"command": ["a\0b"]}, "command: no word of a command has the character NUL"),
        ("preview_submit", {"command": "echo hi"}, 'command "echo hi": should be a valid list'),
        (
            "preview_submit",
            {"command": ["true"], "gpu": "1"},
            'gpu: preview_submit has no such argument; did you mean "gpus"?',
        ),
        ("preview_submit", {"command": ["true"], "workers": 0}, "workers 0: allowed are 1 to 1024 workers"),
        ("preview_submit", {"command": ["true"], "cpu_fallback": True}, "cpu_fallback"),
        ("submit_job", {}, "preview_id: this argument is missing"),
        ("whoami", {"x": 1}, "x: whoami has no such argument; it has none"),
        ("preview_change", {"job": "nope", "held": True}, "no job nope"),
        ("preview_change", {"job": "nope"}, "say what to change: held, priority, or both"),
        ("list_jobs", {"limit": 0}, "limit 0: must be from 1 to 200"),
        ("history", {"since": "later"}, 'since "later"'),
        ("submit_job", {"preview_id": "made up"}, 'preview_id "made up": there is no such preview'),
    ],
)
async def test_a_wrong_call_is_refused_in_one_sentence(
    sandbox: Cluster, namespace: str, tool: str, arguments: dict[str, Any], said: str
) -> None:
    async with served(sandbox, namespace=namespace) as tools:
        assert (await tools.refused(tool, **arguments)).startswith(said)


def arguments_of(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments by a tool's schema: of the right types with any values, and now and then of others."""
    of_types = {
        "string": st.text(max_size=20), "integer": st.integers(-(2**40), 2**40), "boolean": st.booleans(),
        "null": st.none(), "array": st.lists(st.text(max_size=8), max_size=3),
        "object": st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
    }  # fmt: skip

    def value_of(field: dict[str, Any]) -> st.SearchStrategy[Any]:
        kinds = [each["type"] for each in field.get("anyOf", [field])]
        return st.one_of(*(of_types[kind] for kind in kinds), st.sampled_from(["x", "default", "1", 10**30, [[]]]))

    known = {name: value_of(field) for name, field in schema["properties"].items()}
    needed = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: each for name, each in known.items() if name in needed},
        optional={name: each for name, each in known.items() if name not in needed},
    )


async def test_whatever_an_agent_calls_gets_an_answer_or_a_sentence_and_changes_nothing(
    sandbox: Cluster, namespace: str, jobs: Jobs
) -> None:
    await jobs.submit("x", suspend=True)
    before = await jobs.spec("x")
    async with served(sandbox, namespace=namespace) as tools:
        schemas = {each.name: each.input_schema for each in (await tools.agent.list_tools()).tools}
        calls = st.sampled_from(sorted(schemas)).flatmap(
            lambda name: st.tuples(st.just(name), arguments_of(schemas[name]))
        )
        drawn: list[tuple[str, dict[str, Any]]] = []

        @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(calls)
        def draw(call: tuple[str, dict[str, Any]]) -> None:
            drawn.append(call)

        draw()
        for name, arguments in drawn:
            answer = await tools.agent.call_tool(
                name, {**arguments, **({"namespace": namespace} if "namespace" in arguments else {})}
            )
            text = str(getattr(answer.content[0], "text", "")) if answer.content else ""
            assert answer.structured_content is not None or answer.is_error, (name, arguments)
            assert "this should not happen" not in text, (name, arguments, text)
            assert "Traceback" not in text, (name, arguments, text)
    assert await jobs.spec("x") == before
    found = await jobs.client.list(GPUJOBS, as_type=GPUJob, namespace=namespace)
    assert [job.metadata.name for job in found.items] == ["x"]
