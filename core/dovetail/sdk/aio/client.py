"""The client of a gateway: submit and list jobs, hold GPUs, ask the queue."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, overload

from dovetail.answers.callers import Me
from dovetail.answers.doctor import Diagnosis
from dovetail.answers.moves import MovesAnswer
from dovetail.answers.nodes import NodeRow, Overview
from dovetail.answers.plan import PlanRow
from dovetail.answers.questions import Audit, DryRun
from dovetail.answers.quotas import QuotaPlan, QuotaRow
from dovetail.answers.submission import SubmittedJob
from dovetail.answers.use.series import Series, Subject
from dovetail.answers.use.usage import Usage, UsageGroup
from dovetail.answers.v1 import Status
from dovetail.answers.waste import NodeFindings, RightSizeRow
from dovetail.api.historyquery import JobRecord
from dovetail.formats.timestamps import moment
from dovetail.sdk import notebook, specs
from dovetail.sdk.aio import functions
from dovetail.sdk.aio.allocations import LEASE_SECONDS, AsyncAllocation
from dovetail.sdk.aio.functions import AsyncFunctionJob, AsyncMapJob
from dovetail.sdk.aio.jobs import AsyncJob
from dovetail.sdk.aio.listing import AsyncListing
from dovetail.sdk.aio.transport import TIMEOUT_SECONDS, AsyncTransport
from dovetail.sdk.calls import v1, v3
from dovetail.sdk.calls.call import Call
from dovetail.sdk.connection import Token, connection
from dovetail.sdk.errors import InvalidError, NotFoundError
from dovetail.sdk.functions import packing, travel
from dovetail.sdk.functions.packing import Arguments
from dovetail.sdk.functions.travel import Sent
from dovetail.sdk.progress import Progress
from dovetail.sdk.specs import JobOptions

T = TypeVar("T")
# So many rows are asked for at once.
_PAGE: Final = 200
# How long a submission waits for the queue's answer, which usually takes some milliseconds.
_ANSWER_SECONDS: Final = 1


class AsyncClient:
    """A gateway. What is None comes from DOVETAIL_GATEWAY, DOVETAIL_TOKEN and DOVETAIL_NAMESPACE, or is found.

    A pod uses the gateway of its cluster with the token of its service account, which is read again for each request.
    Elsewhere the kubeconfig names the gateway: that of this machine's queue, of a sandbox, or of a cluster.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: Token = None,
        namespace: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        found = connection(base_url, token=token, namespace=namespace)
        self._namespace = found.namespace
        self._transport = AsyncTransport(found, timeout_seconds=timeout_seconds)

    @overload
    async def submit(
        self,
        command: Callable[..., T],
        *arguments: Any,
        kwargs: Mapping[str, Any] | None = None,
        python: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncFunctionJob[T]: ...

    @overload
    async def submit(self, command: Sequence[str] = (), **options: Unpack[JobOptions]) -> AsyncJob: ...

    async def submit(
        self,
        command: Sequence[str] | Callable[..., Any] = (),
        *arguments: Any,
        kwargs: Mapping[str, Any] | None = None,
        python: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncJob:
        """Submit a command, or a function with its arguments, whose job has a `result`. Raises `DovetailError`.

        A function is called with `arguments` and `kwargs` by `python`: this interpreter on one's own machine, `python3`
        of the image on a cluster. `specs.JobOptions` has the other options. `job.answer` says where the job starts,
        what it waits for, or that it can never start here.
        """
        if callable(command):
            calls = [(arguments, kwargs or {})]
            row, sent = await self._call(command, calls=calls, python=python, options=options)
            return AsyncFunctionJob(row, transport=self._transport, sent=sent, workers=options.get("workers", 1))
        if arguments or kwargs or python:
            message = 'arguments are for a function; a command is one list of words, such as ["python", "train.py"]'
            raise InvalidError(message, status=422, reason="Invalid")
        row = await self._create(specs.asked(command, options=options), options=options)
        return AsyncJob(row, transport=self._transport, submitted=True)

    async def map(
        self,
        function: Callable[..., Any],
        *iterables: Iterable[Any],
        at_once: int | None = None,
        python: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncMapJob:
        """Call a function for each element, as one array with a task for each. Raises `DovetailError`.

        Several iterables give its arguments side by side. At most `at_once` tasks run at a time. The other options are
        those of `submit`; the tasks are no gangs.
        """
        calls: list[Arguments] = [(each, {}) for each in zip(*iterables, strict=True)]
        if not calls:
            raise InvalidError("map: there is no element to call the function for", status=422, reason="Invalid")
        if options.get("workers", 1) != 1:
            raise InvalidError("map: each call is one worker; leave workers out", status=422, reason="Invalid")
        array = {"indexes": f"0-{len(calls) - 1}"} | ({} if at_once is None else {"parallelism": at_once})
        row, sent = await self._call(function, calls=calls, python=python, options=options, array=array)
        return AsyncMapJob(row, transport=self._transport, sent=sent, calls=len(calls))

    async def _call(
        self,
        function: Callable[..., Any],
        *,
        calls: Sequence[Arguments],
        python: str | None,
        options: JobOptions,
        array: Mapping[str, Any] | None = None,
    ) -> tuple[SubmittedJob, Sent]:
        """The job that calls a function, and the way on which its outcomes come back."""
        spec = options.get("spec") or {}
        for field in ("array", "sweep"):
            if field in spec:
                problem = f"spec has {field}, and the calls of a function are those of map; leave it out"
                raise InvalidError(problem, status=422, reason="Invalid")
        if array is not None:
            options["spec"] = {**spec, "array": array}
        data = self._transport.connection.local_data
        packed = packing.pack(function, calls=calls, along=data is None)
        sent = travel.send(packed, data=data, python=python, key=specs.checked_key(options.get("key")))
        try:
            asked = sent.completed(specs.asked(sent.command, options=options))
            row = await self._create(asked, options=options)
        except BaseException:
            travel.withdraw(sent, data=data)
            raise
        return row, sent.begun(moment(row.submitted_at))

    async def _create(self, asked: Mapping[str, Any], *, options: JobOptions) -> SubmittedJob:
        body: dict[str, Any] = {"namespace": options.get("namespace") or self._namespace, "spec": asked}
        name = options.get("name")
        if name is not None:
            body["name"] = specs.checked_name(name)
        key = _key(specs.checked_key(options.get("key")))
        wait = options.get("answer_seconds", _ANSWER_SECONDS)
        return await self._transport.send(v3.create(body, key=key, answer_seconds=wait))

    def allocation(
        self,
        gpu: str | float = 1,
        *,
        workers: int = 1,
        priority: int = 10,
        namespace: str | None = None,
        lease_seconds: int = LEASE_SECONDS,
        timeout_seconds: float | None = None,
        progress: Progress = None,
    ) -> AsyncAllocation:
        """GPUs that are held inside a `with` block, which begins when they are there. Raises `InvalidError`.

        After `timeout_seconds` without a place, the block raises `WaitTimeoutError` with the queue's reason, and the
        request is withdrawn.
        """
        return AsyncAllocation(
            self._transport,
            namespace=namespace or self._namespace,
            name=specs.new_name("hold"),
            spec=specs.reservation(gpu, lease_seconds=lease_seconds, priority=priority, workers=workers),
            timeout_seconds=timeout_seconds,
            progress=progress,
        )

    async def job(self, name: str | int, *, namespace: str | None = None) -> AsyncJob:
        """A job by the name of its object, or by its number. Raises `DovetailError`.

        Your job of a function has its `result`, and that of a map its `results`, as from `submit` and `map`.
        """
        where = namespace or self._namespace
        if not isinstance(name, str):
            asked = v3.jobs(namespace=where, number=specs.checked_number(name), limit=1)
            numbered = (await self._transport.send(asked)).items
            if not numbered:
                raise NotFoundError(f"no job {name} in namespace {where}", status=404, reason="NotFound")
            name = numbered[0].name
        return await functions.found(await self._transport.send(v3.job(where, name=name)), transport=self._transport)

    def jobs(
        self,
        *,
        namespace: str | None = None,
        phase: str | None = None,
        user: str | None = None,
        unfinished: bool = False,
    ) -> AsyncListing[AsyncJob]:
        """The jobs that you may list, page by page, in all namespaces unless one is named. Raises `DovetailError`."""
        asked = partial(v3.jobs, namespace=namespace, phase=phase, user=user, unfinished=unfinished, limit=_PAGE)
        return self._rows(
            lambda cursor: asked(cursor=cursor), shown=lambda row: AsyncJob(row, transport=self._transport)
        )

    async def dry_run(
        self, gpu: str | float = 1, *, spec: Mapping[str, Any] | None = None, namespace: str | None = None
    ) -> DryRun:
        """Where and when a job would start, by the operator's own queue. Raises `DovetailError`."""
        asked = spec or specs.reservation(gpu, lease_seconds=LEASE_SECONDS, priority=10, workers=1)
        return await self._transport.send(v3.dry_run(namespace or self._namespace, spec=asked))

    async def moves(self, jobs: Iterable[AsyncJob], *, willing: bool = False) -> list[MovesAnswer]:
        """For each waiting job, which running jobs would have to restart elsewhere so that it starts.

        The plans hold together, and nothing is changed. With `willing`, only jobs count that say that they may move, as
        `AsyncJob.request_moves` moves. Raises `DovetailError`.
        """
        named = ",".join(f"{job.namespace}/{job.name}" for job in jobs)
        return notebook.Listed((await self._transport.send(v3.moves(named, willing=willing))).items)

    async def status(self) -> Status:
        """The cluster in numbers. Raises `DovetailError`."""
        return await self._transport.send(v1.status())

    def nodes(self, *, model: str | None = None) -> AsyncListing[NodeRow]:
        """The nodes with GPUs, or those with GPUs of a model, and their devices. Raises `DovetailError`."""
        return self._rows(lambda cursor: v3.nodes(model=model, limit=_PAGE, cursor=cursor), shown=_as_it_is)

    async def quotas(self) -> list[QuotaRow]:
        """The quotas of your namespaces, and what is used of them. Raises `DovetailError`."""
        return notebook.Listed((await self._transport.send(v3.quotas())).items)

    async def quota_effects(self, name: str, *, spec: Mapping[str, Any]) -> QuotaPlan:
        """What a change to a quota would do to jobs and other quotas, without making it. Raises `DovetailError`.

        `spec` has the fields of the GPUQuota's spec to change, such as `{"guaranteed": {"gpus": 8}}`; None removes one.
        """
        return await self._transport.send(v3.quota_effects(name, body={"spec": spec}))

    async def change_quota(self, name: str, *, spec: Mapping[str, Any], generation: int | None = None) -> QuotaRow:
        """Change a quota. Raises `DovetailError`.

        With the `generation` of the row that you have read, a change after another one is refused (`ConflictError`).
        """
        body = {"spec": spec} | ({} if generation is None else {"generation": generation})
        return await self._transport.send(v3.change_quota(name, body=body))

    def plan(self, *, namespace: str | None = None, bounded: bool = False) -> AsyncListing[PlanRow]:
        """Since when jobs run, and when the others are estimated to start, by start. Raises `DovetailError`.

        With `bounded`, only jobs with planned nodes, that fill a gap, or whose pods will end.
        """
        asked = partial(v3.plan, namespace=namespace, bounded=bounded, limit=_PAGE)
        return self._rows(lambda cursor: asked(cursor=cursor), shown=_as_it_is)

    def right_sizes(self, *, namespace: str | None = None) -> AsyncListing[RightSizeRow]:
        """What jobs should request by what they used, those that save the most GPUs first. Raises `DovetailError`."""
        asked = partial(v3.right_sizes, namespace=namespace, limit=_PAGE)
        return self._rows(lambda cursor: asked(cursor=cursor), shown=_as_it_is)

    async def findings(self) -> NodeFindings:
        """What is wrong with nodes. Raises `DovetailError`."""
        return await self._transport.send(v3.findings())

    async def doctor(self, *, node: str | None = None) -> Diagnosis:
        """What is wrong with the installation, or with one node, as far as you may look. Raises `DovetailError`."""
        return await self._transport.send(v3.doctor(node=node, namespace=self._namespace))

    async def overview(self) -> Overview:
        """All devices with their sums, and how many of your jobs run and wait. Raises `DovetailError`."""
        return await self._transport.send(v3.overview())

    async def audit(self) -> Audit:
        """The proof that no device is promised beyond its capacity. Raises `DovetailError`."""
        return await self._transport.send(v3.audit())

    def history(
        self, *, namespace: str | None = None, since: str | None = None, until: str | None = None
    ) -> AsyncListing[JobRecord]:
        """The jobs of a namespace that have ended, the latest end first. Raises `DovetailError`.

        `since` and `until` bound the end; both are times such as 2026-01-31T18:00:00Z.
        """
        asked = partial(v3.history, namespace or self._namespace, since=since, until=until, limit=_PAGE)
        return self._rows(lambda cursor: asked(cursor=cursor), shown=_as_it_is)

    async def series(
        self,
        of: Subject,
        *,
        name: str | None = None,
        namespace: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Series:
        """What the cluster, a model, a node, a namespace, a project or a job used over time. Raises `DovetailError`.

        `name` is that of the node, the model, the namespace or the job, which is in `namespace`. Without `since`, it is
        the hour before `until`, and of a job all of its run.
        """
        if of == "Job":
            namespace = namespace or self._namespace
        return await self._transport.send(v3.series(of, name=name, namespace=namespace, since=since, until=until))

    async def usage(
        self,
        by: UsageGroup = "Namespace",
        *,
        namespace: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Usage:
        """GPU hours of 30 days, or of the days (UTC) from `since` before `until`, by group. Raises `DovetailError`."""
        return await self._transport.send(v3.usage(by, namespace=namespace, since=since, until=until))

    async def me(self) -> Me:
        """Who the API server says you are. Raises `DovetailError`."""
        return await self._transport.send(v3.me())

    async def send(self, call: Call[T]) -> T:
        """Any call of `dovetail.sdk.calls`. Raises `DovetailError`."""
        return await self._transport.send(call)

    def _rows(self, page_at: Callable[[str], Call[Any]], *, shown: Callable[[Any], T]) -> AsyncListing[T]:
        """The rows of all pages; `page_at` asks for the page at a cursor."""
        return AsyncListing(lambda cursor: self._transport.send(page_at(cursor)), shown=shown)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _as_it_is(row: T) -> T:
    return row


def _key(text: str | None) -> str:
    """The idempotency key: of a text always the same, otherwise a new one."""
    return secrets.token_hex(16) if text is None else sha256(text.encode()).hexdigest()
