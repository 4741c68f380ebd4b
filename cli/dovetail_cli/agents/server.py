"""The server: which tools there are, and what each says of itself. One client, one session."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import wraps
from importlib.metadata import version
from typing import Annotated, Any, Final, ParamSpec

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import BeforeValidator, Field, ValidationError

from dovetail.formats.suggestions import suggestion
from dovetail_cli.agents import changes, reads
from dovetail_cli.agents.changes import JobRequest
from dovetail_cli.agents.reads import Answer
from dovetail_cli.agents.session import Session, Where, opened
from dovetail_cli.ui.error_messages import explain

P = ParamSpec("P")
_INSTRUCTIONS: Final = (
    "GPU jobs of a Kubernetes cluster or of this machine, by Dovetail's queue. Read freely. To submit, cancel or "
    "change a job, call the preview first, tell the user what it says, and carry it out by its preview_id. A preview "
    "is for one use within 10 minutes, and for the job as it was shown: if the job has changed, preview again."
)
# Agents write a number as a number.
Job = Annotated[
    str,
    BeforeValidator(lambda job: str(job) if type(job) is int else job),
    Field(description="Number or name of the job, such as 7 or train."),
]
Namespace = Annotated[str | None, Field(description="Namespace; by default that of the kubeconfig's context.")]
Limit = Annotated[int, Field(description=f"The most rows of the answer, 1 to {reads.MOST_ROWS}.")]
PreviewId = Annotated[str, Field(description="preview_id of the preview that the user has seen.")]
# Options of the commands that tools call otherwise than by the same word.
_ARGUMENTS: Final[Mapping[str, str]] = {"nodes": "workers", "time": "time_limit"}
# Not the hyphens of a value, such as those of the name a--b.
_OPTION: Final = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")
_MOST_SHOWN: Final = 60
_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_CHANGES: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_ENDS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


class _Server(MCPServer):
    """A server that takes no argument which a tool does not have.

    An agent that writes `gpu` for `gpus` gets a sentence, not a job without GPUs.
    """

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises `ToolError` with one sentence."""
        for tool in await self.list_tools():
            if tool.name == name:
                _check_names(arguments, known=tool.input_schema["properties"], tool=name)
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_wrong_value(error.__cause__)) from error
            if isinstance(error.__cause__, ToolError):
                # The library puts "Error executing tool" before our sentence.
                raise error.__cause__ from error
            raise


async def serve(where: Where, *, read_only: bool) -> None:
    """Serve the client on standard input and output until it ends.

    Raises `NoConnectionError` and `KubeconfigError`.
    """
    async with opened(where) as session:
        await build(session, read_only=read_only).run_stdio_async()


def build(session: Session, *, read_only: bool) -> MCPServer:
    """The server with its tools."""
    server = _Server("dovetail", instructions=_INSTRUCTIONS, version=version("dovetail-gpu"), log_level="ERROR")
    _add_reads(server, session=session)
    if not read_only:
        _add_changes(server, session=session)
    return server


def _add_reads(server: MCPServer, *, session: Session) -> None:
    def tool(work: Callable[P, Awaitable[Answer]]) -> None:
        server.add_tool(_in_sentences(work), annotations=_READS)

    async def whoami() -> Answer:
        """Who you are to the cluster, and which cluster it is."""
        return await reads.whoami(session)

    async def list_jobs(
        *,
        namespace: Namespace = None,
        states: Annotated[str | None, Field(description="Only these, such as PD,R or Failed.")] = None,
        finished: Annotated[bool, Field(description="Also jobs that have ended.")] = False,
        limit: Limit = 50,
    ) -> Answer:
        """The jobs of a namespace: state, place or reason, position, estimated start."""
        return await reads.jobs(session, namespace=namespace, states=states, finished=finished, limit=limit)

    async def show_job(*, job: Job, namespace: Namespace = None) -> Answer:
        """Everything about one job: its row, its status, and its events."""
        return await reads.job(session, job=job, namespace=namespace)

    async def read_log(
        *,
        job: Job,
        namespace: Namespace = None,
        worker: Annotated[int, Field(description="Index of the worker, from 0.")] = 0,
        lines: Annotated[int, Field(description=f"How many last lines, 1 to {reads.MOST_LINES}.")] = 100,
    ) -> Answer:
        """The last lines that a worker of a job has printed."""
        return await reads.log(session, job=job, namespace=namespace, worker=worker, lines=lines)

    async def explain_job(*, job: Job, namespace: Namespace = None) -> Answer:
        """Why a job is where it is or waits.

        Each node's answer, and what would have to change so that the job starts.
        """
        return await reads.explained(session, job=job, namespace=namespace)

    async def list_nodes() -> Answer:
        """The nodes with GPUs and their devices.

        Models, load, what is free, who holds what, and why a device takes no work.
        """
        return await reads.nodes(session)

    async def list_quotas() -> Answer:
        """The limits of namespaces, users and projects, and what is used of them."""
        return await reads.quotas(session)

    async def history(
        *,
        since: Annotated[str, Field(description="Jobs that ended since then: 7d, 12h, or a date.")] = "7d",
        namespace: Namespace = None,
        limit: Limit = 50,
    ) -> Answer:
        """The jobs of a namespace that have ended, the latest first.

        Also those whose objects are gone.
        """
        return await reads.ended(session, since=since, namespace=namespace, limit=limit)

    for each in (whoami, list_jobs, show_job, read_log, explain_job, list_nodes, list_quotas, history):
        tool(each)


def _add_changes(server: MCPServer, *, session: Session) -> None:
    async def preview_submit(
        *,
        command: Annotated[list[str], Field(description='Program and arguments, such as ["python", "train.py"].')],
        gpus: Annotated[str | None, Field(description="GPUs of each worker: 1, 0.5, 2(V100); none without it.")] = None,
        name: Annotated[str | None, Field(description="Name of the job.")] = None,
        image: Annotated[str | None, Field(description="Container image; by default the profile's.")] = None,
        env: Annotated[dict[str, str] | None, Field(description="Variables of the job.")] = None,
        workdir: Annotated[str | None, Field(description="Working directory.")] = None,
        workers: Annotated[int, Field(description="Workers that start together.")] = 1,
        priority: Annotated[int, Field(description="0 to 255; higher goes first.")] = 10,
        time_limit: Annotated[str | None, Field(description="Such as 02:00:00.")] = None,
        cpu_fallback: Annotated[
            bool, Field(description="Run it on the CPU if no node of the cluster could ever have its GPUs.")
        ] = False,
        cpus: Annotated[str | None, Field(description="CPUs of each worker, such as 4.")] = None,
        memory: Annotated[str | None, Field(description="Host memory of each worker, such as 16G.")] = None,
        wait_for_capacity: Annotated[
            bool, Field(description="Queue the job although no node of the cluster could ever run it.")
        ] = False,
        namespace: Namespace = None,
    ) -> Answer:
        """What if this job were submitted now. Submits nothing.

        Whether it is valid, and where and when it would start.
        """
        asked = JobRequest(
            command=command, gpus=gpus, name=name, image=image, env=env or {}, workdir=workdir, workers=workers,
            priority=priority, time_limit=time_limit, cpu_fallback=cpu_fallback, cpus=cpus, memory=memory,
        )  # fmt: skip
        return await changes.preview_submit(session, asked=asked, may_wait=wait_for_capacity, namespace=namespace)

    async def preview_cancel(*, job: Job, namespace: Namespace = None) -> Answer:
        """What if this job were cancelled. Cancels nothing.

        Who would start sooner, and which jobs would be cancelled with it.
        """
        return await changes.preview_cancel(session, job=job, namespace=namespace)

    async def preview_change(
        *,
        job: Job,
        namespace: Namespace = None,
        held: Annotated[bool | None, Field(description="True holds the job, false releases it.")] = None,
        priority: Annotated[int | None, Field(description="0 to 255; higher goes first.")] = None,
    ) -> Answer:
        """What if this job were held, released or of another priority. Changes nothing.

        Which jobs would start at another time.
        """
        return await changes.preview_change(session, job=job, namespace=namespace, held=held, priority=priority)

    async def submit_job(preview_id: PreviewId) -> Answer:
        """Submit the job of a preview_submit."""
        return await changes.submit(session, preview_id=preview_id)

    async def cancel_job(preview_id: PreviewId) -> Answer:
        """Cancel the job of a preview_cancel. What it has computed and not saved is lost."""
        return await changes.carry_out(session, preview_id=preview_id, cancels=True)

    async def change_job(preview_id: PreviewId) -> Answer:
        """Hold, release or reprioritize the job of a preview_change.

        To hold a running job ends its pods.
        """
        return await changes.carry_out(session, preview_id=preview_id, cancels=False)

    for preview in (preview_submit, preview_cancel, preview_change):
        server.add_tool(_in_sentences(preview), annotations=_READS)
    server.add_tool(_in_sentences(submit_job), annotations=_CHANGES)
    server.add_tool(_in_sentences(cancel_job), annotations=_ENDS)
    server.add_tool(_in_sentences(change_job), annotations=_ENDS)


def _in_sentences(work: Callable[P, Awaitable[Answer]]) -> Callable[P, Awaitable[Answer]]:
    """The tool with each error as the one sentence that the commands print."""

    @wraps(work)
    async def run(*arguments: P.args, **named: P.kwargs) -> Answer:
        try:
            return await work(*arguments, **named)
        except Exception as error:
            raise ToolError(_OPTION.sub(_as_argument, str(explain(error)))) from error

    return run


def _as_argument(option: re.Match[str]) -> str:
    """An option of a command as tools call it: `cpu_fallback` for `--cpu-fallback`."""
    return _ARGUMENTS.get(option[1], option[1].replace("-", "_"))


def _check_names(arguments: Mapping[str, Any], *, known: Collection[str], tool: str) -> None:
    for name in arguments:
        if name not in known:
            there = ", ".join(known) or "none"
            raise ToolError(
                f"{name}: {tool} has no such argument{suggestion(name, known=known) or f'; it has {there}'}"
            )


def _wrong_value(error: ValidationError) -> str:
    """What is wrong with the first argument that is."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{name}: this argument is missing"
    shown = str(first["input"])
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
    return f'{name} "{shown}": {first["msg"].removeprefix("Input ")}'
