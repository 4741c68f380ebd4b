"""What SECURITY.md says of a stolen token of each account, tried with such a token on the API server."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden, KubeError
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.chart.rights import accounts_of, render
from tests.cluster.accounts import connection_of
from tests.cluster.mallory import make_pod
from tests.cluster.test_chart import run
from tests.rights.stolen import LEGACY, TABLE, Stolen

pytestmark = pytest.mark.cluster

NAMESPACE: Final = "dovetail-system"
REVIEWS: Final = Resource(
    group="authorization.k8s.io", plural="selfsubjectaccessreviews", kind="SelfSubjectAccessReview", namespaced=False
)
# Rights of the chart for simulated nodes, which a sandbox has: the operator asks its one agent to partition GPUs.
SIMULATED: Final = {("dovetail-operator", "patch", "gpunodes.dovetail.dev")}
VERSIONS: Final = {names.GROUP: names.VERSION}
CLUSTER_WIDE: Final = {"nodes", "gpunodes", "gpuquotas", "clusterroles", "clusterrolebindings"}
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def every_account(sandbox: Cluster) -> Iterator[None]:
    """The accounts that no sandbox keeps, with their roles: those of Helm's hooks, of MPS, and of scripts."""
    text = render(locate.resolve(["helm"], report=Lines(sys.stderr))["helm"], LEGACY)
    kept = {"scripts", "dovetail-mps", "dovetail-trust", "dovetail-cleanup", "dovetail-test"}
    bound = accounts_of(text)
    wanted = [
        each
        for each in yaml.safe_load_all(text)
        if each
        and (
            (each["kind"] == "ServiceAccount" and each["metadata"]["name"] in kept)
            or (each["kind"].endswith(("Role", "RoleBinding")) and _of(each, bound=bound) & kept)
        )
    ]
    kubectl = ("kubectl", f"--kubeconfig={sandbox.kubeconfig}")
    done = run(*kubectl, "apply", "-f", "-", text=yaml.safe_dump_all(wanted))
    assert done.returncode == 0, done.stderr
    yield
    run(*kubectl, "delete", "--wait=false", "-f", "-", text=yaml.safe_dump_all(wanted))


def _of(manifest: Manifest, *, bound: Any) -> set[str]:
    """The accounts that a role or a binding is for."""
    role = manifest.get("roleRef", manifest["metadata"])["name"]
    return set(bound.get((role, manifest["metadata"].get("namespace", "")), ()))


@asynccontextmanager
async def thief_of(account: str, client: Client, *, sandbox: Cluster) -> AsyncIterator[Client]:
    """Acts with a token of the account."""
    connection = await connection_of(account, client, namespace=NAMESPACE, sandbox=sandbox)
    async with Client(connection) as thief:
        yield thief


async def may(thief: Client, verb: str, what: str, *, namespace: str) -> bool:
    """What the API server answers to a token that asks whether it may."""
    whole, _, name = what.partition(":")
    base, _, subresource = whole.partition("/")
    plural, _, group = base.partition(".")
    attributes = {
        "verb": verb, "resource": plural, "group": group, "subresource": subresource, "name": name,
        "namespace": "" if plural in CLUSTER_WIDE else namespace,
    }  # fmt: skip
    review = {"spec": {"resourceAttributes": attributes}}
    answer = await thief.create(REVIEWS, body=review, as_type=Manifest)
    return bool(answer["status"].get("allowed"))


@pytest.mark.parametrize("account", TABLE, ids=lambda each: each.account)
async def test_a_stolen_token_can_do_what_the_page_says_and_not_what_it_says_it_cannot(
    account: Stolen, client: Client, sandbox: Cluster, every_account: None
) -> None:
    async with thief_of(account.account, client, sandbox=sandbox) as thief:
        wrong = []
        for can in account.can:
            for what, verbs in can.rights.items() if not can.option else ():
                for verb in verbs.split():
                    wrong += [] if await allowed(thief, verb, what) else [f"may not {verb} {what}: {can.says}"]
        for cannot in account.cannot:
            for what, verbs in cannot.lacks.items():
                for verb in verbs.split():
                    if (account.account, verb, what) not in SIMULATED:
                        wrong += await violations(thief, verb, what)
    assert not wrong, "\n".join(wrong)


async def allowed(thief: Client, verb: str, what: str) -> bool:
    """Whether it may, in the release's namespace; the API server hears of new roles by a watch of its own."""
    try:
        async with asyncio.timeout(5):
            while not await may(thief, verb, what, namespace=NAMESPACE):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    return True


async def violations(thief: Client, verb: str, what: str) -> list[str]:
    """How a token goes beyond its sentence: by the API server's word, and by a request that it sends."""
    found = [f"may {verb} {what}"] if await may(thief, verb, what, namespace="kube-system") else []
    try:
        await request(thief, verb, what)
    except Forbidden:
        return found
    except KubeError as error:
        return [*found, f"{verb} {what}: {error}"]
    return found


async def request(thief: Client, verb: str, what: str) -> None:
    """Send the request, about an object that does not exist."""
    whole, _, name = what.partition(":")
    base, _, subresource = whole.partition("/")
    plural, _, group = base.partition(".")
    resource = Resource(
        group=group, plural=plural, kind="", version=VERSIONS.get(group, "v1"), namespaced=plural not in CLUSTER_WIDE
    )
    about: dict[str, Any] = {"namespace": "kube-system"} if resource.namespaced else {}
    name = name or "none-such"
    if verb == "get":
        await thief.get(resource, name=name, as_type=Manifest, **about)
    elif verb == "list":
        await thief.list(resource, as_type=Manifest, **about)
    elif verb == "create":
        more = {"name": name, "subresource": subresource} if subresource else {}
        await thief.create(resource, body={}, as_type=Manifest, **about, **more)
    elif verb == "patch" and not subresource:
        await thief.patch(resource, name=name, patch={}, as_type=Manifest, **about)
    elif verb == "delete":
        await thief.delete(resource, name=name, **about)


async def test_a_stolen_operator_opens_gates_and_changes_nothing_else_of_a_pod(
    client: Client, sandbox: Cluster, namespace: str
) -> None:
    await client.create(PODS, body=make_pod({}, nodeSelector={"none": "such"}), as_type=Pod, namespace=namespace)
    image = {"spec": {"containers": [{"name": "t0", "image": "evil"}]}}
    allocation = {"metadata": {"annotations": {names.ALLOCATION: "{}"}}}
    condition = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    async with thief_of("dovetail-operator", client, sandbox=sandbox) as thief:
        for patch, subresource, sentence in (
            ({"metadata": {"labels": {"x": "y"}}}, "", "changes nothing else of a pod"),
            (image, "", "changes nothing else of a pod"),
            (allocation, "status", "is written by Dovetail's extender"),
            (condition, "status", "and nothing else of a pod"),
        ):
            with pytest.raises(KubeError, match=sentence):
                await thief.patch(
                    PODS,
                    name="p",
                    patch=patch,
                    as_type=Pod,
                    namespace=namespace,
                    subresource=subresource,
                    kind="strategic",
                )


async def test_a_stolen_extender_gives_no_devices_past_the_allocation(
    client: Client, sandbox: Cluster, namespace: str
) -> None:
    body = make_pod({}, nodeSelector={"none": "such"})
    pod = await client.create(PODS, body=body, as_type=Pod, namespace=namespace)
    async with thief_of("dovetail-extender", client, sandbox=sandbox) as thief:
        with pytest.raises(KubeError, match="would give the pod devices past Dovetail"):
            await thief.bind(
                pod, node="v100-0", annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"}, deadline_seconds=10
            )
        for patch, subresource in (({"metadata": {"annotations": {names.ALLOCATION: "{}"}}}, ""), ({}, "status")):
            with pytest.raises(Forbidden):
                await thief.patch(
                    PODS, name="p", patch=patch, as_type=Pod, namespace=namespace, subresource=subresource
                )
