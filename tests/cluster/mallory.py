"""An ordinary user on the sandbox, who tries to see devices that are not his: the role `edit` of one namespace.

Attempts are dry runs wherever the API server allows, many side by side.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from dovetail import names
from dovetail.api.resources import NAMESPACES, PODS, RUNTIMECLASSES, SERVICEACCOUNTS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail_sandbox.cluster import Cluster
from tests.cluster.accounts import ROLE_BINDINGS, ROLES, connection_of, until_the_rights_count
from tests.cluster.jobs import Jobs
from tests.visibility import SAFE, VARIABLE, Manifest, sights

AT_ONCE: Final = 24
PATIENCE_SECONDS: Final = 60
# By name of the class, its handler; `nvidia` is the chart's, and `fast` is in no value.
CLASSES: Final = {"nvidia-legacy": "nvidia", "nvidia-cdi": "nvidia", "fast": "nvidia-x"}
OTHER_CLASS: Final = "plain"
# The resources that NVIDIA's plugin advertises somewhere in this cluster.
PLUGINS: Final = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb")
VOID: Final = {"name": VARIABLE, "value": "void"}
FROM_MAP: Final = {"configMapRef": {"name": "mine", "optional": True}}
ENVIRONMENTS: Final[dict[str, Manifest]] = {
    "absent": {},
    "all": {"env": [{"name": VARIABLE, "value": "all"}]},
    "UUID": {"env": [{"name": VARIABLE, "value": "GPU-5a0ffb3c-0c0c-4b5e-9d2a-1a2b3c4d5e6f"}]},
    "void twice": {"env": [VOID, VOID]},
    "envFrom": {"envFrom": [FROM_MAP]},
}


@asynccontextmanager
async def an_account(
    name: str, client: Client, *, rules: Sequence[Manifest], namespace: str, sandbox: Cluster
) -> AsyncIterator[Client]:
    """A service account with these rights in its namespace."""
    named = {"metadata": {"name": name}}
    await client.create(SERVICEACCOUNTS, body=named, as_type=Manifest, namespace=namespace)
    await client.create(ROLES, body={**named, "rules": rules}, as_type=Manifest, namespace=namespace)
    await bind_role(client, account=name, kind="Role", role=name, namespace=namespace)
    connection = await connection_of(name, client, namespace=namespace, sandbox=sandbox)
    async with Client(connection) as theirs:
        yield theirs


async def bind_role(client: Client, *, account: str, kind: str, role: str, namespace: str) -> None:
    """Give an account a role in its namespace."""
    binding = {
        "metadata": {"name": f"{account}-{role}"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": kind, "name": role},
    }
    await client.create(ROLE_BINDINGS, body=binding, as_type=Manifest, namespace=namespace)


@asynccontextmanager
async def an_editor(client: Client, *, namespace: str, sandbox: Cluster) -> AsyncIterator[Client]:
    """An account with the role `edit` of its namespace and the right to debug, in a cluster that has all CLASSES."""
    debug = {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch", "update"]}
    async with (
        a_site_s_classes(client),
        an_account("mallory", client, rules=[debug], namespace=namespace, sandbox=sandbox) as theirs,
    ):
        await bind_role(client, account="mallory", kind="ClusterRole", role="edit", namespace=namespace)
        await until_the_rights_count(theirs, namespace=namespace)
        await until_the_classes_count(theirs, namespace=namespace)
        yield theirs
        for each in (await client.list(PODS, as_type=Manifest, namespace=namespace)).items:
            await client.delete(PODS, name=each["metadata"]["name"], namespace=namespace, grace_period_seconds=0)


@asynccontextmanager
async def a_site_s_classes(client: Client) -> AsyncIterator[None]:
    """The RuntimeClasses that a site with NVIDIA's GPU operator has, one that nobody configured, and another's."""
    wanted = {**CLASSES, OTHER_CLASS: "runc"}
    for name, handler in wanted.items():
        await client.create(RUNTIMECLASSES, body={"metadata": {"name": name}, "handler": handler}, as_type=Manifest)
    try:
        yield
    finally:
        for name in wanted:
            await client.delete(RUNTIMECLASSES, name=name)


async def until_the_classes_count(account: Client, *, namespace: str) -> None:
    """The API server hears of RuntimeClasses by watches of its own, one of them for the policy."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for name in CLASSES:
            while True:
                said = await refusal(account, make_pod({}, runtimeClassName=name), namespace=namespace)
                if "not found" not in said and (said or name != "fast"):
                    break
                await asyncio.sleep(0.05)


@asynccontextmanager
async def the_job_controller(client: Client, *, sandbox: Cluster) -> AsyncIterator[Client]:
    """The account that alone makes a GPUJob's pods, as their templates say: these go past the webhook."""
    async with Client(
        await connection_of("job-controller", client, namespace="kube-system", sandbox=sandbox)
    ) as theirs:
        yield theirs


# What the Job controller's pods have of a GPUJob's.
OF_A_JOB: Final = {
    "labels": {names.LABEL_JOB: "x"},
    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "none", "controller": True}],
}


def make_pod(*tried: Manifest, metadata: Manifest | None = None, **spec: object) -> Manifest:
    """A pod whose containers are tried: `t0`, `t1`, …"""
    containers = [{"name": f"t{at}", "image": "none", **each} for at, each in enumerate(tried)]
    return {"metadata": {"name": "p", **(metadata or {})}, "spec": {"containers": containers, **spec}}


async def attempt(account: Client, pod: Manifest, *, namespace: str) -> Manifest | str:
    """The pod as the API server would store it, or the sentence with which it is refused."""
    try:
        return await account.create(PODS, body=pod, as_type=Manifest, namespace=namespace, dry_run=True)
    except KubeError as error:
        return str(error)


async def refusal(account: Client, pod: Manifest, *, namespace: str) -> str:
    """The sentence of a refusal; empty when the pod is let in."""
    answer = await attempt(account, pod, namespace=namespace)
    return answer if isinstance(answer, str) else ""


async def side_by_side(pods: Sequence[tuple[Client, Manifest]], *, namespace: str) -> list[Manifest | str]:
    """What became of each pod, made by its account, in their order."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(account: Client, pod: Manifest) -> Manifest | str:
        async with gate:
            return await attempt(account, pod, namespace=namespace)

    return await asyncio.gather(*(one(account, pod) for account, pod in pods))


def harm(stored: Manifest, *, nvidia: bool) -> str:
    """What is wrong with a pod that was let in; empty when none of its containers sees more than it was given."""
    seen = sights(stored["spec"], nvidia=nvidia, advertised=PLUGINS)
    return "" if set(seen.values()) <= SAFE else f"{seen}"


async def others_go_on(client: Client) -> None:
    """Another namespace's job starts within five seconds."""
    name = f"other-{time.monotonic_ns()}"
    await client.create(NAMESPACES, body={"metadata": {"name": name}}, as_type=Manifest)
    jobs = Jobs(client, namespace=name)
    try:
        begun = time.monotonic()
        await jobs.submit()
        await jobs.phase("Running")
        assert time.monotonic() - begun < 5
    finally:
        await jobs.clear()
        await client.delete(NAMESPACES, name=name)
