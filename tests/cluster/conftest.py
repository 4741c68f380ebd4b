"""One sandbox for all tests of this folder, a namespace for each, and the audit after each file.

In a parallel run there are two for the files that have theirs for themselves, and one that several processes share: see
`tests/lanes.py`.

`DOVETAIL_TEST_SANDBOX=<name>` takes a sandbox that is up already (`dovetail sandbox up --name <name> --nodes
tests/cluster/nodes.yaml`) and leaves it up: quicker while you write a test. Tests of preemption want OVERRIDES too,
each with `--set`. `DOVETAIL_TEST_KUBERNETES=1.34` chooses the control plane's minor version.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from dovetail.api.builtin import Namespace, Pod
from dovetail.api.resources import NAMESPACES, PODS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_cli.cluster import audit
from dovetail_sandbox import cluster
from dovetail_sandbox.cluster import Cluster
from tests import lanes, runs
from tests.cluster import record
from tests.cluster.jobs import PATIENCE_SECONDS, Jobs, Pause
from tests.cluster.mallory import an_editor
from tests.cluster.sandboxes import Shared, bring_up, files_with, named
from tests.cluster.tenants import CANARY, new_namespace

NODES = Path(__file__).with_name("nodes.yaml")
# Jobs of the second priority take the place of jobs of the first, and no others do: only one test has such.
PREEMPTING = (5, 250)
DRIVER_ABSENCE_SECONDS = 5
OVERRIDES = [
    f"config.dra_driver_absence={DRIVER_ABSENCE_SECONDS}",
    "config.hold_ttl_seconds=10",
    "config.preemption.priority_gap=245",
    "config.preemption.min_run=0",
    "config.preemption.grace=8",
    "config.preemption.per_hour=1000",
    "config.preemption.reclaim_grace=1",
    # No simulated pod is above its promise unless a test says so.
    "config.memory_overuse=Evict",
    "config.memory_overuse_grace=0",
]
NO_ISSUER = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: []\n"


@pytest.fixture(scope="module")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The sandbox with every component ready; it ends with the last file that uses it, however that ends."""
    if name := named():
        yield cluster.get(name)
        return
    folder = runs.folder(request.config)
    kind = _sandbox_of(request.node.nodeid, config=request.config)
    shared = Shared(
        folder=folder / "sandboxes" / kind.replace(" ", "-"),
        files=_files_with(request),
        free=lanes.FREE_SANDBOXES if kind == lanes.FREE_SANDBOX else 0,
        up=partial(_bring_up, folder=folder),
        before_end=partial(record.keep, folder=folder / "records"),
    )
    with shared.used_by(request.node.nodeid) as found:
        yield found


def _bring_up(own: Cluster, folder: Path) -> None:
    bring_up(
        own,
        nodes_file=NODES,
        overrides=OVERRIDES,
        request_log=True,
        kubernetes=os.environ.get("DOVETAIL_TEST_KUBERNETES"),
        authentication=_authentication_of(own, folder=folder),
    )


def _authentication_of(own: Cluster, *, folder: Path) -> Path:
    path = folder / f"{own.name}.yaml"
    if not path.exists():
        # A run on a sandbox that is up already has made no folder.
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(NO_ISSUER)
    return path


@pytest.fixture
def authentication(request: pytest.FixtureRequest, sandbox: Cluster) -> Iterator[Path]:
    """The AuthenticationConfiguration of the sandbox's API server, which knows no issuer but those of the test."""
    path = _authentication_of(sandbox, folder=runs.folder(request.config))
    yield path
    path.write_text(NO_ISSUER)


def _sandbox_of(nodeid: str, *, config: pytest.Config) -> str:
    """One process has one sandbox for all files."""
    return (lanes.sandbox_of(nodeid) if hasattr(config, "workerinput") else None) or "of-all"


def _files_with(request: pytest.FixtureRequest) -> frozenset[str]:
    """The files of this run that use the same sandbox: not those with a sandbox of their own, or that are skipped."""
    own, config = _sandbox_of(request.node.nodeid, config=request.config), request.config
    return files_with(item for item in request.session.items if _sandbox_of(item.nodeid, config=config) == own)


@pytest.fixture
async def canary(client: Client) -> AsyncIterator[str]:
    """A namespace of another tenant, in which everything has a name that no other has."""
    async with new_namespace(client, prefix=CANARY) as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def audited(sandbox: Cluster) -> Iterator[None]:
    """What `dovetail audit` says when the file's tests are over, their tidying included: nothing is promised twice."""
    yield
    # A status may lag behind what the tests have just taken away.
    report = audit.prove(kubeconfig=str(sandbox.kubeconfig), context=None, older_than_seconds=PATIENCE_SECONDS)
    assert not report.items, "\n".join(f"{each.kind} {each.subject}: {each.message}" for each in report.items)


@pytest.fixture
async def client(sandbox: Cluster) -> AsyncIterator[Client]:
    """An administrator's client."""
    async with Client(load_connection(sandbox.kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A fresh namespace in a cluster without pods that earlier tests leave; what is in it goes with it."""
    # On a sandbox that several processes share, pods of others leave at any time.
    if _sandbox_of(request.node.nodeid, config=request.config) != lanes.SHARED_SANDBOX:
        await _until_pods_have_left(client)
    async with new_namespace(client, prefix="test") as name:
        yield name


@pytest.fixture
async def jobs(client: Client, namespace: str) -> AsyncIterator[Jobs]:
    """The GPUJobs of the namespace; they are gone before the next test wants the devices."""
    jobs = Jobs(client, namespace=namespace)
    yield jobs
    await jobs.clear()


@pytest.fixture
async def mallory(client: Client, namespace: str, sandbox: Cluster) -> AsyncIterator[Client]:
    """An editor of the namespace, in a cluster with the runtime classes of a site."""
    async with an_editor(client, namespace=namespace, sandbox=sandbox) as theirs:
        yield theirs


async def _until_pods_have_left(client: Client) -> None:
    """Wait for the pods that are being deleted, with their namespace or alone: until then they hold devices."""
    pause = Pause()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            namespaces, _ = await client.list(NAMESPACES, as_type=Namespace)
            ending = {each.metadata.name for each in namespaces if each.metadata.deletion_timestamp}
            pods, _ = await client.list(PODS, as_type=Pod)
            if not any(pod.metadata.deletion_timestamp or pod.metadata.namespace in ending for pod in pods):
                return
            await pause.before_next_look()
