"""The life of one pod: checked, started, followed, ended, reported.

Each step first looks at what the run's files say, so that a new local node continues where the previous one was killed.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from dovetail import names
from dovetail.api.builtin import is_terminal
from dovetail.api.resources import GPUJOBS, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, KubeError, NotFound
from dovetail.kube.retry import retrying
from dovetail.logs import get_logger
from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_local_node import admission, cuda_numbers, pod_status, processes, variables, volume_files
from dovetail_local_node.admission import Refusal
from dovetail_local_node.environments import Environments
from dovetail_local_node.launch import Launch, Place, launch_of
from dovetail_local_node.limits import amounts as limits
from dovetail_local_node.limits import groups
from dovetail_local_node.limits.groups import Groups
from dovetail_local_node.pod_object import LocalPod, Submitted
from dovetail_local_node.runs import Ended, Run, Runs
from dovetail_local_node.volumes import Source

log = get_logger("dovetail.local_node.pods")

_KILLED: Final = 137
_TERMINATED: Final = 143
_BY_BOOT: Final = 255
_DEFAULT_GRACE_SECONDS: Final = 30
_POLL_SECONDS: Final = 0.002
# Of a sweep of jobs that are shorter, each costs four requests less.
_UNREPORTED_SECONDS: Final = 0.1
_BOOTED: Final = {"reason": "Rebooted", "message": "The machine was started again while the job ran."}
_STOPPED: Final = {"reason": "Stopped", "message": "The queue was stopped while the job ran."}
_LOST: Final = Refusal(reason="Lost", message="The local node has no record of this run, so it is not started again.")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What all lives share."""

    client: Client
    runs: Runs
    environments: Environments
    place: Place
    boot_id: str
    now: Callable[[], datetime]
    extra: dict[str, str]
    groups: Groups
    umask: int = 0o022
    read_numbers: Callable[[], Awaitable[Mapping[str, int]]] = cuda_numbers.read


@dataclass(slots=True, kw_only=True)
class PodLife:
    """One pod. `seen` brings it each version of the pod, `gone` its disappearance.

    A process that ends within `unreported_seconds` is reported as ended at once.
    """

    node: Node
    pod: LocalPod
    unreported_seconds: float = _UNREPORTED_SECONDS
    _going: asyncio.Event = field(default_factory=asyncio.Event)
    _gone: asyncio.Event = field(default_factory=asyncio.Event)
    _reporting: bool = False

    def seen(self, pod: LocalPod) -> None:
        """Take the pod's newest version; a deleted pod is asked to end."""
        self.pod = pod
        self._show_fields()
        if pod.metadata.deletion_timestamp is not None:
            self._going.set()

    def gone(self) -> None:
        """Note that the pod does not exist any more: its processes end at once."""
        self._gone.set()
        self._going.set()

    async def run(self) -> None:
        """Live until the pod is gone."""
        self.seen(self.pod)
        if not is_terminal(self.pod.status.phase):
            await self._live()
        await self._going.wait()
        await self._delete()
        # Its volumes can be large.
        await asyncio.to_thread(self.node.runs.remove, self.pod.metadata.uid)

    async def _live(self) -> None:
        uid = self.pod.metadata.uid
        if not self._is_of_this_boot() and self.node.runs.process(uid) is None:
            # Written before the boot and never started: no shim of it can come any more.
            self.node.runs.remove(uid)
        if self.node.runs.read(uid) is None:
            if self._going.is_set():
                return
            refusal = _LOST if self.pod.status.phase == "Running" else await self._begin()
            if refusal is not None:
                log.info("pod refused", pod=self.pod.metadata.name, reason=refusal.reason, message=refusal.message)
                await self._report(pod_status.refused(refusal=refusal, now=self.node.now()))
                return
        if admission.is_reservation(self.pod):
            await self._hold()
        else:
            await self._follow()

    async def _begin(self) -> Refusal | None:
        place = self.node.place
        submitter = await self._submitter()
        refusal = admission.check(self.pod, submitter=submitter, user=place.user, accounts=place.accounts)
        if refusal is not None:
            return refusal
        base = self.node.environments.environment(self.pod)
        if isinstance(base, Refusal):
            return base
        folder = self.node.runs.volumes(self.pod.metadata.uid)
        numbers = await self._cuda_numbers()
        launch = launch_of(
            self.pod, base=base, extra=self.node.extra, numbers=numbers, place=self.node.place, folder=folder
        )
        try:
            refusal = await volume_files.fill(self.pod, folder=folder, read=self._contents)
            if refusal is None:
                # The newest version: the pod may have changed while its volumes were filled.
                volume_files.show_fields(self.pod, folder=folder, address=place.address)
                self._write_run(launch)
        except OSError as error:
            return Refusal(reason="StartError", message=f"{error.filename or launch.output}: {error.strerror}")
        return refusal

    async def _cuda_numbers(self) -> Mapping[str, int]:
        """CUDA's numbers now: those in the allocation are from before it, and maybe from before a boot."""
        if not variables.promised_devices(self.pod, address=self.node.place.address):
            return {}
        return await self.node.read_numbers()

    def _show_fields(self) -> None:
        """Let the files of a pod that has started show its fields as they are now, such as a notice of preemption."""
        uid = self.pod.metadata.uid
        if not any(volume.downward_api for volume in self.pod.spec.volumes) or self.node.runs.read(uid) is None:
            return
        try:
            volume_files.show_fields(self.pod, folder=self.node.runs.volumes(uid), address=self.node.place.address)
        except OSError as error:
            log.warning("fields of a pod cannot be shown", pod=self.pod.metadata.name, problem=str(error))

    async def _contents(self, source: Source) -> Mapping[str, bytes] | None:
        """The values of the object that holds the files of a volume; None if there is none."""

        async def read(_attempt: int) -> Mapping[str, bytes] | None:
            where = self.pod.metadata.namespace
            try:
                found = await self.node.client.get(
                    source.resource, name=source.object_name, as_type=source.as_type, namespace=where
                )
            except NotFound:
                return None
            return found.by_key

        return await self._until_done(read)

    def _create_groups(self) -> tuple[str, ...]:
        """Make the cgroups of the run. A reservation runs nothing, so it has none."""
        if admission.is_reservation(self.pod):
            return ()
        wanted = limits.of_container(self.pod.spec.containers[0].resources)
        return tuple(map(str, self.node.groups.create(self.pod.metadata.uid, limits=wanted)))

    async def _submitter(self) -> str | None:
        """The user whom admission recorded in the pod's GPUJob; None without such a job."""
        name = admission.job_name(self.pod)
        if not name:
            return None
        where = self.pod.metadata.namespace

        async def read(_attempt: int) -> str | None:
            try:
                found = await self.node.client.get(GPUJOBS, name=name, as_type=Submitted, namespace=where)
            except NotFound:
                return None
            return found.metadata.annotations.get(names.USER, "")

        return await self._until_done(read)

    def _write_run(self, launch: Launch) -> None:
        meta = self.pod.metadata
        run = Run(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            boot_id=self.node.boot_id,
            output=str(launch.output),
            error=str(launch.error or ""),
            offset=processes.prepare(launch),
            groups=self._create_groups(),
        )
        self.node.runs.write(run, launch=launch)

    async def _hold(self) -> None:
        """A reservation runs nothing: it holds its devices until its pod is deleted."""
        await self._report(pod_status.running(self.pod, started_at=self.node.now()))
        await self._going.wait()
        end = Ended(exit_code=_KILLED, at=self.node.now())
        await self._report(pod_status.ended(self.pod, started_at=end.at, end=end))

    async def _follow(self) -> None:
        runs, uid = self.node.runs, self.pod.metadata.uid
        process = await self._started()
        started_at = runs.started_at(uid) or self.node.now()
        if runs.ended(uid) is None and self._is_of_this_boot():
            if identity.alive(process):
                runs.clear_stopped(uid)
            reporting = asyncio.create_task(self._report_running(started_at))
            await self._until_end(process)
            await self._finish(reporting)
        await self._leave_groups()
        end = self._end_of()
        log.info("pod ended", pod=self.pod.metadata.name, exit_code=end.exit_code)
        await self._report(pod_status.ended(self.pod, started_at=started_at, end=end))

    async def _leave_groups(self) -> None:
        """Note what the run's cgroups have counted, and remove them with all that still runs in them."""
        runs, uid = self.node.runs, self.pod.metadata.uid
        run = runs.read(uid)
        made = [Path(group) for group in run.groups] if run else []
        if groups.out_of_memory(made):
            runs.mark_out_of_memory(uid)
        await groups.end(made)

    async def _report_running(self, started_at: datetime) -> None:
        await asyncio.sleep(self.unreported_seconds)
        self._reporting = True
        await self._report(pod_status.running(self.pod, started_at=started_at))

    async def _finish(self, reporting: asyncio.Task[None]) -> None:
        """Drop a report that has not begun; wait for one that has, so that it cannot follow the report of the end."""
        if not self._reporting:
            reporting.cancel()
        await asyncio.wait({reporting})

    async def _started(self) -> ProcessId:
        """Start the run unless a shim has started it already; the process of that shim."""
        runs, uid = self.node.runs, self.pod.metadata.uid
        if (process := runs.process(uid)) is not None:
            return process
        run = runs.read(uid)
        assert run is not None
        error = Path(run.error) if run.error else None
        pid = processes.start(runs.of(uid), output=Path(run.output), error=error, umask=self.node.umask)
        while (process := runs.process(uid)) is None:  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(_POLL_SECONDS)
        if process.pid != pid:
            # The shim of an earlier local node was first, so ours has ended.
            processes.reap(pid)
        return process

    def _is_of_this_boot(self) -> bool:
        run = self.node.runs.read(self.pod.metadata.uid)
        return run is not None and run.boot_id == self.node.boot_id

    async def _until_end(self, process: ProcessId) -> None:
        """Follow a process until it has ended, by itself or because the pod is deleted. No process of it stays."""
        ending = asyncio.create_task(processes.until_gone(process))
        going = asyncio.create_task(self._going.wait())
        await asyncio.wait({ending, going}, return_when=asyncio.FIRST_COMPLETED)
        going.cancel()
        if not ending.done():
            await self._stop(process, ending=ending)
        await asyncio.to_thread(processes.kill_rest, self.pod.metadata.uid)
        processes.reap(process.pid)

    async def _stop(self, process: ProcessId, *, ending: asyncio.Task[None]) -> None:
        processes.signal_group(process, number=signal.SIGTERM)
        gone = asyncio.create_task(self._gone.wait())
        await asyncio.wait({ending, gone}, timeout=self._grace_seconds(), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not ending.done():
            processes.signal_group(process, number=signal.SIGKILL)
            await ending

    def _grace_seconds(self) -> float:
        asked, usual = self.pod.metadata.deletion_grace_period_seconds, self.pod.spec.termination_grace_period_seconds
        return float(next((each for each in (asked, usual) if each is not None), _DEFAULT_GRACE_SECONDS))

    def _end_of(self) -> Ended:
        """How the run ended. A shim that ends without an exit code was killed together with its process.

        A process that answers SIGTERM with exit code 0 has not done its work, so a run that the queue's stop or the
        machine's shutdown ended never succeeds.
        """
        runs, uid = self.node.runs, self.pod.metadata.uid
        end = runs.ended(uid)
        if runs.was_stopped(uid):
            at, code = (end.at, end.exit_code) if end else (self.node.now(), _KILLED)
            return Ended(exit_code=code or _TERMINATED, at=at, **_STOPPED)
        if runs.was_out_of_memory(uid) and (end is None or end.exit_code):
            at, code = (end.at, end.exit_code) if end else (self.node.now(), _KILLED)
            return Ended(exit_code=code, at=at, reason="OOMKilled", message=self._too_much_memory())
        if end is not None and runs.was_terminated(uid) and not self._is_of_this_boot():
            return Ended(exit_code=end.exit_code or _TERMINATED, at=end.at, **_BOOTED)
        if end is not None:
            return end
        if not self._is_of_this_boot():
            return Ended(exit_code=_BY_BOOT, at=self.node.now(), **_BOOTED)
        return Ended(exit_code=_KILLED, at=self.node.now())

    def _too_much_memory(self) -> str:
        limit = self.pod.spec.containers[0].resources.limits.get("memory", "")
        return f"It reached its limit of {limit} of memory, and the kernel ended a process of it."

    async def _report(self, status: pod_status.Status) -> None:
        """Write a status. A pod that does not exist any more, or was replaced, needs none."""
        meta = self.pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": status}

        async def write(_attempt: int) -> None:
            with suppress(NotFound, Conflict):
                await self.node.client.patch(
                    PODS,
                    name=meta.name,
                    patch=patch,
                    as_type=LocalPod,
                    kind="strategic",
                    namespace=meta.namespace,
                    subresource="status",
                )

        await self._until_done(write)

    async def _delete(self) -> None:
        """Remove a deleted pod from the API server, as kubelet does once its processes have ended."""
        meta = self.pod.metadata
        if self._gone.is_set():
            return

        async def delete(_attempt: int) -> None:
            with suppress(NotFound, Conflict):
                await self.node.client.delete(
                    PODS, name=meta.name, namespace=meta.namespace, uid=meta.uid, grace_period_seconds=0
                )

        await self._until_done(delete)

    async def _until_done(self, act: Callable[[int], Awaitable[T]]) -> T:
        """Repeat a request until the API server has answered it."""
        return await retrying(act, may_retry=_is_of_api, failed=self._failed)

    def _failed(self, error: Exception, wait_seconds: float) -> None:
        again = round(wait_seconds, 1)
        log.warning("request failed", pod=self.pod.metadata.name, error=str(error), again_in_seconds=again)


def _is_of_api(error: Exception, _attempt: int) -> bool:
    return isinstance(error, KubeError)
