"""Other projects' Go modules: the CRDs of their kinds, and their real controllers next to a sandbox's API server."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dovetail.api.resources import CRDS, SERVICEACCOUNTS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_sandbox import progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import go_build, locate
from tests import go_modules
from tests.background import free_ports
from tests.cluster import ray_dashboard
from tests.cluster.accounts import connection_of

Body = dict[str, Any]
CLUSTER_ROLES: Final = Resource(
    group="rbac.authorization.k8s.io", plural="clusterroles", kind="ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    group="rbac.authorization.k8s.io", plural="clusterrolebindings", kind="ClusterRoleBinding", namespaced=False
)
_POLL_SECONDS: Final = 0.1
_RESTART_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project by its Go module.

    - `name`: the name of its program and of its account.
    - `module`: its Go module.
    - `folder`: the module folder of the sandbox that pins the version.
    - `crds`: the files with its CRDs.
    - `role`: the file with the ClusterRole of its controller.
    """

    name: str
    module: str
    folder: str
    crds: tuple[str, ...]
    role: str = ""

    def bodies(self) -> list[Body]:
        """Its CRDs."""
        return [_object(self._contents() / path) for path in self.crds]

    def rules(self) -> list[Body]:
        """The rules of its controller's ClusterRole."""
        found: list[Body] = _object(self._contents() / self.role)["rules"]
        return found

    def _contents(self) -> Path:
        return go_modules.contents(self.module, pinned_in=go_build.module_folder(self.folder))


JOBSET: Final = Project(
    name="jobset",
    module="sigs.k8s.io/jobset",
    folder="kueue",
    crds=("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
)
KUBERAY: Final = Project(
    name="kuberay",
    module="github.com/ray-project/kuberay/ray-operator",
    folder="kuberay",
    crds=tuple(f"config/crd/bases/ray.io_{kind}.yaml" for kind in ("rayclusters", "rayjobs", "rayservices")),
    role="config/rbac/role.yaml",
)
MPI_OPERATOR: Final = Project(
    name="mpi-operator",
    module="github.com/kubeflow/mpi-operator",
    folder="mpi-operator",
    crds=("manifests/base/kubeflow.org_mpijobs.yaml",),
    role="manifests/base/cluster-role.yaml",
)


def _object(path: Path) -> Body:
    """The first object of a YAML file. The CRDs are of a megabyte, which libyaml's loader reads in a second."""
    found: Body = next(iter(yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)))
    return found


@contextlib.asynccontextmanager
async def installed(client: Client, *, projects: Sequence[Project]) -> AsyncIterator[None]:
    """The CRDs of these projects, served; they are gone after the block."""
    crds = [body for project in projects for body in await asyncio.to_thread(project.bodies)]
    async with served(client, crds=crds):
        yield


@contextlib.asynccontextmanager
async def served(client: Client, *, crds: Sequence[Body]) -> AsyncIterator[None]:
    """These CRDs, served; they are gone after the block."""
    for body in crds:
        await client.create(CRDS, body=body, as_type=Body)
    try:
        async with asyncio.timeout(60):
            for body in crds:
                while not await _is_served(client, name=body["metadata"]["name"]):  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        names = [body["metadata"]["name"] for body in crds]
        for name in names:
            await client.delete(CRDS, name=name)
        async with asyncio.timeout(60):
            for name in names:
                while await _exists(client, name=name):  # noqa: ASYNC110 - the next test creates them again
                    await asyncio.sleep(_POLL_SECONDS)


async def _exists(client: Client, *, name: str) -> bool:
    try:
        await client.get(CRDS, name=name, as_type=Body)
    except NotFound:
        return False
    return True


async def _is_served(client: Client, *, name: str) -> bool:
    found = await client.get(CRDS, name=name, as_type=Body)
    spec, conditions = found["spec"], (found.get("status") or {}).get("conditions") or []
    if not any((each["type"], each["status"]) == ("Established", "True") for each in conditions):
        return False
    version = next(each["name"] for each in spec["versions"] if each["served"])
    kind = Resource(group=spec["group"], version=version, plural=spec["names"]["plural"], kind=spec["names"]["kind"])
    with contextlib.suppress(NotFound):
        await client.list(kind, as_type=Body)
        return True
    return False


@contextlib.asynccontextmanager
async def ray_and_mpi(
    client: Client, *, cluster: Cluster, namespace: str, folder: Path
) -> AsyncIterator[ray_dashboard.RayDashboard]:
    """KubeRay and the MPI operator are at work in a namespace; gives the stand-in of Ray's dashboard."""
    metrics, health = free_ports(count=2)
    of_ray = (
        f"--watch-namespace={namespace}",
        "--enable-leader-election=false",
        f"--metrics-addr=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
    )
    of_mpi = (f"--namespace={namespace}", f"--lock-namespace={namespace}", "--kube-api-qps=50")
    working = partial(at_work, client=client, cluster=cluster, namespace=namespace, folder=folder)
    async with ray_dashboard.serving() as ray, installed(client, projects=(KUBERAY, MPI_OPERATOR)):
        by_proxy = {"HTTP_PROXY": ray.url, "http_proxy": ray.url, "NO_PROXY": "", "no_proxy": ""}
        async with (
            working(KUBERAY, arguments=of_ray, environment=by_proxy),
            working(MPI_OPERATOR, arguments=of_mpi, environment={}),
        ):
            yield ray


@contextlib.asynccontextmanager
async def at_work(
    project: Project,
    client: Client,
    *,
    cluster: Cluster,
    namespace: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
) -> AsyncIterator[Path]:
    """The project's own controller, as an account of `namespace` with its own role; gives the file with its log.

    If it ends, it is started again, as kubelet does: a controller without its Lease ends.
    """
    programs = await asyncio.to_thread(locate.resolve, [project.name], report=progress.reporter())
    kubeconfig, log = folder / f"{project.name}.kubeconfig", folder / f"{project.name}.log"
    async with _account(project, client, namespace=namespace):
        connection = await connection_of(project.name, client, namespace=namespace, sandbox=cluster)
        body = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
        body["users"] = [{"name": each["name"], "user": {"token": connection.token}} for each in body["users"]]
        kubeconfig.write_bytes(msgspec.json.encode(body))
        variables = {**os.environ, "KUBECONFIG": str(kubeconfig), **environment}
        command = (str(programs[project.name]), *arguments)
        kept = asyncio.create_task(_kept(command, variables=variables, log=log))
        try:
            yield log
        finally:
            kept.cancel()
            await asyncio.gather(kept, return_exceptions=True)


async def _kept(command: Sequence[str], *, variables: Mapping[str, str], log: Path) -> None:
    """Run a program until this is cancelled, and again whenever it ends."""
    with log.open("wb") as output:
        while True:
            process = await asyncio.create_subprocess_exec(*command, env=variables, stdout=output, stderr=output)
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await process.wait()
            await asyncio.sleep(_RESTART_SECONDS)


@contextlib.asynccontextmanager
async def _account(project: Project, client: Client, *, namespace: str) -> AsyncIterator[None]:
    """The account of its controller in the test's namespace, with its own ClusterRole."""
    named = {"metadata": {"name": project.name}}
    rules = await asyncio.to_thread(project.rules)
    subject = {"kind": "ServiceAccount", "name": project.name, "namespace": namespace}
    role = {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": f"{namespace}-{project.name}"}
    of_role = {"metadata": {"name": role["name"]}}
    binding = of_role | {"subjects": [subject], "roleRef": role}
    await client.create(SERVICEACCOUNTS, body=named, as_type=Body, namespace=namespace)
    await client.create(CLUSTER_ROLES, body=of_role | {"rules": rules}, as_type=Body)
    await client.create(CLUSTER_ROLE_BINDINGS, body=binding, as_type=Body)
    try:
        yield
    finally:
        await client.delete(CLUSTER_ROLE_BINDINGS, name=role["name"])
        await client.delete(CLUSTER_ROLES, name=role["name"])
