"""GPUJobs on the sandbox as a user has them: submitted, watched until they are as they should be, changed, deleted."""

import asyncio
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from dovetail.api.builtin import Event, Job, Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.api.meta import find_condition
from dovetail.api.resources import EVENTS, GPUJOBS, JOBS, PODS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail.names import EXIT_CODE, LABEL_JOB, RUN_SECONDS

# For one step of a job's life, with room for a machine that has other things to do.
PATIENCE_SECONDS: Final = 60
FOR_EVER: Final = 100_000
_SHORTEST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 0.3


def manifest(name: str, *, run: float = FOR_EVER, exit_code: int = 0, **spec: Any) -> dict[str, Any]:
    """A GPUJob as in YAML: one GPU unless `spec` says otherwise, with a container that runs that many seconds."""
    if "gpu" not in spec and "resources" not in spec:
        spec["gpu"] = 1
    template = {
        "metadata": {"annotations": {RUN_SECONDS: str(run), EXIT_CODE: str(exit_code)}},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }
    return {
        "apiVersion": GPUJOBS.api_version,
        "kind": GPUJOBS.kind,
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


class Pause:
    """The time between two looks: a tenth of what was waited, so that a long wait costs the API server little."""

    def __init__(self) -> None:
        self._began = asyncio.get_running_loop().time()

    async def before_next_look(self) -> None:
        """Sleep."""
        waited = asyncio.get_running_loop().time() - self._began
        await asyncio.sleep(min(max(waited / 10, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))


class Jobs:
    """The GPUJobs of one namespace."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def submit(self, name: str = "x", **spec: Any) -> GPUJob:
        """Create one; see `manifest`."""
        return await self.client.create(GPUJOBS, body=manifest(name, **spec), as_type=GPUJob, namespace=self.namespace)

    async def change(self, name: str = "x", **spec: Any) -> None:
        """Change fields of its spec."""
        await self.client.patch(GPUJOBS, name=name, patch={"spec": spec}, as_type=GPUJob, namespace=self.namespace)

    async def spec(self, name: str = "x") -> dict[str, Any]:
        """Its spec on the API server."""
        found = await self.client.get(GPUJOBS, name=name, as_type=dict[str, Any], namespace=self.namespace)
        return dict(found["spec"])

    async def delete(self, name: str = "x") -> None:
        """Delete it, as kubectl does."""
        await self.client.delete(GPUJOBS, name=name, namespace=self.namespace)

    async def until(
        self, name: str, holds: Callable[[GPUJobStatus], bool], *, seconds: float = PATIENCE_SECONDS
    ) -> GPUJobStatus:
        """Its status once it is as it should be."""
        status: GPUJobStatus | None = None
        try:
            pause = Pause()
            async with asyncio.timeout(seconds):
                while True:
                    job = await self.client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=self.namespace)
                    status = job.status
                    if holds(status):
                        return status
                    await pause.before_next_look()
        except TimeoutError:
            raise AssertionError(f"{name} is still {status}") from None

    async def phase(self, phase: str, name: str = "x", *, reason: str | None = None) -> GPUJobStatus:
        """Its status once it has that phase, and that reason where one is named."""
        return await self.until(
            name, lambda status: status.phase == phase and (reason is None or status.reason == reason)
        )

    async def child(self, name: str = "x") -> Job:
        """Its batch Job."""
        return await self.client.get(JOBS, name=name, as_type=Job, namespace=self.namespace)

    async def made_child(self, name: str = "x") -> Job:
        """Its batch Job once there is one."""
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with suppress(NotFound):
                    return await self.child(name)
                await pause.before_next_look()

    async def completed_child(self, name: str = "x") -> Job:
        """Its batch Job once that one is complete."""
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                child = await self.child(name)
                if child.status.completion_time:
                    return child
                await pause.before_next_look()

    async def pods(self, name: str = "x") -> list[Pod]:
        """The pods that carry its label."""
        pods, _ = await self.client.list(
            PODS, as_type=Pod, namespace=self.namespace, label_selector=f"{LABEL_JOB}={name}"
        )
        return pods

    async def end(self, name: str = "x") -> None:
        """Let its pods that run end well now: a time of its own might be over before a test has looked."""
        for pod in await self.pods(name):
            if pod.status.phase == "Running":
                await self.end_pod(pod)

    async def end_pod(self, pod: Pod, *, exit_code: int = 0, conditions: list[dict[str, Any]] | None = None) -> None:
        """Let a simulated pod end as kubelet would tell it."""
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        container = {"image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
        status = {
            "phase": "Failed" if exit_code else "Succeeded",
            "conditions": conditions or [],
            "containerStatuses": [container | {"name": each.name} for each in pod.spec.containers],
        }
        await self.client.patch(
            PODS,
            name=pod.metadata.name,
            patch={"status": status},
            as_type=Pod,
            namespace=self.namespace,
            subresource="status",
        )

    async def events(self, name: str = "x") -> list[Event]:
        """What was announced of it, in order of time."""
        events, _ = await self.client.list(EVENTS, as_type=Event, namespace=self.namespace)
        ours = [each for each in events if (each.involved_object.kind, each.involved_object.name) == ("GPUJob", name)]
        return sorted(ours, key=lambda each: each.event_time or "")

    async def announced(self, reason: str, name: str = "x") -> list[Event]:
        """What was announced of it, once an event with that reason is there; they come a moment after the status."""
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                events = await self.events(name)
                if any(event.reason == reason for event in events):
                    return events
                await pause.before_next_look()

    async def there(self, resource: Resource, name: str = "x") -> None:
        """Wait until there is such an object."""
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with suppress(NotFound):
                    await self.client.get(resource, name=name, as_type=dict[str, Any], namespace=self.namespace)
                    return
                await pause.before_next_look()

    async def gone(self, resource: Resource, name: str = "x") -> None:
        """Wait until there is no such object."""
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    await self.client.get(resource, name=name, as_type=dict[str, Any], namespace=self.namespace)
                except NotFound:
                    return
                await pause.before_next_look()

    async def without_pods(self, name: str | None = "x") -> None:
        """Wait until no pod carries its label; None: until there is no pod of any job."""
        selector = LABEL_JOB if name is None else f"{LABEL_JOB}={name}"
        pause = Pause()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                pods, _ = await self.client.list(PODS, as_type=Pod, namespace=self.namespace, label_selector=selector)
                if not pods:
                    return
                await pause.before_next_look()

    async def clear(self) -> None:
        """Delete all of them and wait until their pods are gone: the next test finds the devices free."""
        jobs, _ = await self.client.list(GPUJOBS, as_type=GPUJob, namespace=self.namespace)
        for job in jobs:
            # The tasks of an array go with it.
            with suppress(NotFound):
                await self.delete(job.metadata.name)
        await self.without_pods(None)


def condition(status: GPUJobStatus, type_: str) -> tuple[str, str] | None:
    """Status and reason of a condition, None where it is not there."""
    found = find_condition(status.conditions, type=type_)
    return None if found is None else (found.status, found.reason)


async def run(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program and give its outcome. It has the time to say itself that its own time is over."""
    return await asyncio.to_thread(
        subprocess.run, command, input=stdin, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_SECONDS
    )
