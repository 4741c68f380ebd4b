"""Other projects' programs as clients of a sandbox: the recipe that each one follows, and its process.

A file `NAME.in` has the versions that a client is tested with, and `NAME.txt` the lock of its environment
(`uv pip compile NAME.in --universal --python-version 3.11 --no-header --no-annotate --output-file NAME.txt`).
"""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail import names
from dovetail.api.builtin import Event, Pod, is_terminal
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpujob.enums import FINISHED
from dovetail.api.resources import EVENTS, GPUJOBS, PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from tests import environments
from tests.cluster.jobs import PATIENCE_SECONDS
from tests.guides.blocks import blocks_of

PAGES: Final = Path(__file__).parents[3] / "docs" / "integrations"
# Airflow alone needs a minute to start on a machine with other work.
CLIENT_SECONDS: Final = 240


def recipe(page: str, *, language: str) -> str:
    """The blocks of one language of a page of docs/integrations, one after the other."""
    return "\n".join(recipes(page, language=language))


def recipes(page: str, *, language: str) -> list[str]:
    """The blocks of one language of a page of docs/integrations."""
    blocks = blocks_of((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    found = [block.text for block in blocks if block.language == language]
    assert found, f"{page}.md has no block of {language}"
    return found


async def program_of(client: str, *, name: str = "python") -> str:
    """A program of a client's environment; the first time, this installs it."""
    python = await asyncio.to_thread(environments.python_of, Path(__file__).with_name(f"{client}.txt"))
    return str(python.with_name(name))


@dataclass(frozen=True, slots=True)
class Program:
    """A client's process, and the file with all that it prints."""

    process: asyncio.subprocess.Process
    log: Path

    def printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    async def prints(self, *texts: str) -> None:
        """Wait until it has printed each of these texts."""
        async with asyncio.timeout(CLIENT_SECONDS):
            while not all(text in self.printed() for text in texts):
                assert self.process.returncode is None, f"ended without {texts}: {self.printed()}"
                await asyncio.sleep(0.1)

    async def ends(self) -> int:
        """Its exit code."""
        async with asyncio.timeout(CLIENT_SECONDS):
            return await self.process.wait()

    def terminate(self) -> None:
        """End it as a supervisor does."""
        self.process.terminate()


@asynccontextmanager
async def running(
    *command: str, folder: Path, sandbox: Cluster, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """A client's process in `folder`, with the sandbox's kubeconfig; it ends with the context."""
    variables = {**os.environ, "HOME": str(folder), "KUBECONFIG": str(sandbox.kubeconfig), **(environment or {})}
    with tempfile.NamedTemporaryFile(dir=folder, prefix="program-", suffix=".log", delete=False) as output:
        log = Path(output.name)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=variables, stdout=output, stderr=output, start_new_session=True
        )
        program = Program(process, log)
        try:
            yield program
        except BaseException as error:
            error.add_note(program.printed()[-4000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def until(holds: Callable[[], Awaitable[bool]], *, what: str) -> None:
    """Wait until something holds; otherwise fail with `what` it was."""
    try:
        async with asyncio.timeout(CLIENT_SECONDS):
            while not await holds():  # noqa: ASYNC110 - the API server is asked
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {CLIENT_SECONDS} s: {what}") from None


async def until_pods(client: Client, *, namespace: str, holds: Callable[[list[Pod]], bool]) -> list[Pod]:
    """The pods of a namespace, once they are as they should be."""
    async with asyncio.timeout(CLIENT_SECONDS):
        while True:
            pods, _ = await client.list(PODS, as_type=Pod, namespace=namespace)
            if holds(pods):
                return pods
            await asyncio.sleep(0.1)


async def announced(client: Client, *, pod: Pod, text: str) -> None:
    """Wait for an event on a pod whose message begins with a text."""
    selector = f"involvedObject.kind=Pod,involvedObject.name={pod.metadata.name}"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            events, _ = await client.list(
                EVENTS, as_type=Event, namespace=pod.metadata.namespace, field_selector=selector
            )
            if any(event.message.startswith(text) for event in events):
                return
            await asyncio.sleep(0.1)


async def until_nothing_is_held(client: Client, *, namespace: str) -> None:
    """Wait until no pod of a namespace that has not ended has devices, and no job has a seat for a pod."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            pods, _ = await client.list(PODS, as_type=Pod, namespace=namespace)
            jobs, _ = await client.list(GPUJOBS, as_type=GPUJob, namespace=namespace)
            alive = [pod for pod in pods if not is_terminal(pod.status.phase)]
            holding = [pod for pod in alive if names.ALLOCATION in pod.metadata.annotations]
            planned = [job for job in jobs if job.status.phase not in FINISHED and _seats(job)]
            if not holding and not planned:
                return
            await asyncio.sleep(0.1)


def _seats(job: GPUJob) -> int:
    """How many pods the extender keeps room for."""
    plan = job.status.placement
    return 0 if plan is None else sum(node.workers for node in plan.nodes) - len(plan.released)
