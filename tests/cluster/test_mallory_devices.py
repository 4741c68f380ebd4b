"""What an ordinary user tries in order to see devices that are not his, on the real API server.

The account has the role `edit` of one namespace. The Job controller makes the pods with a GPUJob's label, as it alone
may. The matrix is tried by dry runs, side by side; whatever is let in is judged by `tests/visibility.py`, which knows
kubelet's and the runtime's rules and none of ours.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from dovetail import names
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import NAMESPACES, PODS, RUNTIMECLASSES, SERVICEACCOUNTS
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs
from tests.cluster.test_admission import ROLE_BINDINGS, connection_of, until_the_rights_count
from tests.visibility import SAFE, VARIABLE, Manifest, sights

pytestmark = pytest.mark.cluster

AT_ONCE: Final = 24
# By name of the class, its handler; `nvidia` is the chart's, and the last one no value names.
CLASSES: Final = {"nvidia-legacy": "nvidia", "nvidia-cdi": "nvidia", "fast": "nvidia-x"}
OTHER_HANDLER: Final = "plain"
PLUGINS: Final = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb")
RESOURCES: Final = (*PLUGINS, "nvidia.com/anything", names.GPU_MILLI)
ALL: Final = [{"name": VARIABLE, "value": "all"}]
VOID: Final = {"name": VARIABLE, "value": "void"}
FROM_MAP: Final = [{"configMapRef": {"name": "mine", "optional": True}}]
ENVIRONMENTS: Final[dict[str, Manifest]] = {
    "absent": {},
    "all": {"env": ALL},
    "UUID": {"env": [{"name": VARIABLE, "value": "GPU-5a0ffb3c-0c0c-4b5e-9d2a-1a2b3c4d5e6f"}]},
    "void twice": {"env": [VOID, VOID]},
    "envFrom": {"envFrom": FROM_MAP},
}
KINDS: Final = ("container", "init", "sidecar")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pod of the matrix: its second container is the one that is tried."""

    amount: str
    resource: str
    environment: str
    is_labelled: bool
    runtime_class: str
    kind: str

    @property
    def is_nvidias(self) -> bool:
        """Whether NVIDIA's runtime runs the pod."""
        return self.runtime_class.startswith("nvidia") or self.runtime_class in CLASSES

    @property
    def is_completed(self) -> bool:
        """Whether the webhook sees the pod: it is on a class that it knows, or asks us, and has not a job's shape."""
        known = self.runtime_class.startswith("nvidia") or self.resource == names.GPU_MILLI
        has_variable = self.environment in {"all", "UUID", "void twice"}
        return known and not (self.is_labelled and has_variable)

    def pod(self) -> Manifest:
        """The pod as it is sent: `main` asks nothing and says so."""
        tried = {"name": "tried", "image": "none", **ENVIRONMENTS[self.environment]}
        tried["resources"] = {"limits": {self.resource: self.amount}}
        spec: Manifest = {"containers": [{"name": "main", "image": "none", "env": [VOID]}]}
        if self.kind == "container":
            spec["containers"].append(tried)
        else:
            spec["initContainers"] = [tried | ({"restartPolicy": "Always"} if self.kind == "sidecar" else {})]
        if self.resource == names.GPU_MILLI:
            spec["schedulerName"] = names.SCHEDULER_NAME
        if self.runtime_class:
            spec["runtimeClassName"] = self.runtime_class
        labels = {names.LABEL_JOB: "x"} if self.is_labelled else {}
        owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "none", "controller": True}]
        metadata = {"name": "p", "labels": labels, "ownerReferences": owners if self.is_labelled else []}
        return {"metadata": metadata, "spec": spec}

    def may_come_in(self) -> bool:
        """Whether it is let in, perhaps completed."""
        if self.resource == names.GPU_MILLI:
            return self._asking_us_may_come_in()
        if not self.is_nvidias:
            return True
        if self.amount == "0":
            return False
        if self.resource in PLUGINS:
            # The variable is taken out where the webhook sees the pod; of envFrom nobody can tell what it brings.
            return self.environment == "absent" or (self.environment != "envFrom" and self.is_completed)
        return self.is_completed

    def _asking_us_may_come_in(self) -> bool:
        if not self.is_completed:
            return False
        if self.amount == "0":
            return True
        # A plain init container has no devices of its own, and a share runs in our class alone.
        return self.kind != "init" and self.runtime_class in {"", "nvidia"}


def cases() -> Iterator[Case]:
    axes = ("01", RESOURCES, ENVIRONMENTS, (False, True), ("nvidia", *CLASSES, OTHER_HANDLER, ""), KINDS)
    for amount, resource, environment, is_labelled, runtime_class, kind in itertools.product(*axes):
        yield Case(
            amount=amount, resource=resource, environment=environment, is_labelled=is_labelled,
            runtime_class=runtime_class, kind=kind,
        )  # fmt: skip


@pytest.fixture
async def classes(client: Client) -> AsyncIterator[None]:
    """The classes that sites with NVIDIA's GPU operator have, one of a name that nobody configured, and another's."""
    wanted = {**CLASSES, OTHER_HANDLER: "runc"}
    for name, handler in wanted.items():
        await client.create(RUNTIMECLASSES, {"metadata": {"name": name}, "handler": handler}, as_type=Manifest)
    yield
    for name in wanted:
        await client.delete(RUNTIMECLASSES, name)


@pytest.fixture
async def mallory(client: Client, namespace: str, sandbox: Cluster, classes: None) -> AsyncIterator[Client]:
    """An account with the role `edit` of its namespace, and nothing else."""
    named = {"metadata": {"name": "mallory"}}
    await client.create(SERVICEACCOUNTS, named, as_type=Manifest, namespace=namespace)
    role = {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "mallory", "namespace": namespace}
    binding = {**named, "subjects": [subject], "roleRef": role}
    await client.create(ROLE_BINDINGS, binding, as_type=Manifest, namespace=namespace)
    async with Client(await connection_of("mallory", client, namespace=namespace, sandbox=sandbox)) as theirs:
        await until_the_rights_count(theirs, namespace=namespace)
        await until_the_classes_count(theirs, namespace=namespace)
        yield theirs
    for pod in (await client.list(PODS, as_type=Manifest, namespace=namespace)).items:
        await client.delete(PODS, pod["metadata"]["name"], namespace=namespace, grace_period_seconds=0)


async def until_the_classes_count(mallory: Client, *, namespace: str) -> None:
    """The API server hears of RuntimeClasses by watches of its own, one of them for the policy."""
    async with asyncio.timeout(60):
        for name in CLASSES:
            pod = {
                "metadata": {"name": "p"},
                "spec": {"runtimeClassName": name, "containers": [{"name": "main", "image": "x"}]},
            }
            while True:
                said = await refusal(mallory, pod, namespace=namespace)
                if "not found" not in said and (said or name != "fast"):
                    break
                await asyncio.sleep(0.05)


async def attempt(account: Client, pod: Manifest, *, namespace: str) -> Manifest | str:
    """The pod as the API server would store it, or the sentence with which it is refused."""
    try:
        return await account.create(PODS, pod, as_type=Manifest, namespace=namespace, dry_run=True)
    except KubeError as error:
        return str(error)


async def refusal(account: Client, pod: Manifest, *, namespace: str) -> str:
    """The sentence of a refusal; empty when the pod is let in."""
    answer = await attempt(account, pod, namespace=namespace)
    return answer if isinstance(answer, str) else ""


async def side_by_side(pods: list[tuple[Client, Manifest]], *, namespace: str) -> list[Manifest | str]:
    """What becomes of each pod, made by its account."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(account: Client, pod: Manifest) -> Manifest | str:
        async with gate:
            return await attempt(account, pod, namespace=namespace)

    return await asyncio.gather(*(one(account, pod) for account, pod in pods))


def harm(stored: Manifest, *, nvidia: bool) -> str:
    """What is wrong with a pod that was let in; empty when none of its containers sees more than it was given."""
    seen = sights(stored["spec"], nvidia=nvidia, advertised=PLUGINS)
    return "" if set(seen.values()) <= SAFE else f"{seen}"


async def test_no_pod_of_the_matrix_sees_a_device_that_it_was_not_given(
    mallory: Client, client: Client, namespace: str, sandbox: Cluster
) -> None:
    tried = list(cases())
    connection = await connection_of("job-controller", client, namespace="kube-system", sandbox=sandbox)
    async with Client(connection) as controller:
        pods = [(controller if case.is_labelled else mallory, case.pod()) for case in tried]
        answers = await side_by_side(pods, namespace=namespace)
    wrong = []
    for case, answer in zip(tried, answers, strict=True):
        if isinstance(answer, str):
            wrong += [f"{case}: refused: {answer}"] if case.may_come_in() else []
            wrong += [] if any(word in answer for word in SENTENCES) else [f"{case}: by another sentence: {answer}"]
        else:
            seen = harm(answer, nvidia=case.is_nvidias or answer["spec"].get("runtimeClassName") == "nvidia")
            wrong += [f"{case}: sees {seen}"] if seen else []
            wrong += [] if case.may_come_in() else [f"{case}: let in"]
    assert not wrong, f"{len(wrong)} of {len(tried)}:\n" + "\n".join(wrong[:20])
    await others_go_on(client)


# Each refusal says what is wrong with the container, in words of ours.
SENTENCES: Final = (
    "which gives it no", "must have NVIDIA_VISIBLE_DEVICES once", "must not set NVIDIA_VISIBLE_DEVICES",
    "schedulerName must be dovetail", "runs in the class nvidia", "uses the devices of a container that asks the same",
)  # fmt: skip


async def others_go_on(client: Client) -> None:
    """Another namespace's job starts within five seconds."""
    name = f"other-{time.monotonic_ns()}"
    await client.create(NAMESPACES, {"metadata": {"name": name}}, as_type=Manifest)
    jobs = Jobs(client, namespace=name)
    try:
        begun = time.monotonic()
        await jobs.submit()
        await jobs.phase("Running")
        assert time.monotonic() - begun < 5
    finally:
        await jobs.clear()
        await client.delete(NAMESPACES, name)
