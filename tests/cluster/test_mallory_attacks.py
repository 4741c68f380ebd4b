"""Single attempts of an ordinary user to see devices that are not his, on the real API server.

What each is refused with is said; what is let in is judged by `tests/visibility.py`.
"""

import asyncio
import itertools
from typing import Any, Final

import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS, PODS, SECRETS, SERVICEACCOUNTS
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.gpu.request import RequestError
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.pods.demand import ask_of_job
from dovetail_operator.manifests.batch_job import build_job
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs, manifest
from tests.cluster.mallory import (
    CLASSES,
    ENVIRONMENTS,
    FROM_MAP,
    OF_A_JOB,
    OTHER_CLASS,
    PLUGINS,
    VOID,
    an_account,
    attempt,
    bind_role,
    harm,
    make_pod,
    others_go_on,
    refusal,
    side_by_side,
    the_job_controller,
)
from tests.operator_.builders import make_job
from tests.visibility import VARIABLE, Manifest

pytestmark = pytest.mark.cluster

EVERY_CLASS: Final = ("nvidia", *CLASSES)
VOLUME: Final = {"name": "v", "emptyDir": {}}
ONE: Final = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def env(*entries: Manifest, **more: Any) -> Manifest:
    return {"env": list(entries), **more}


def said(value: str, name: str = VARIABLE) -> Manifest:
    return {"name": name, "value": value}


def field(path: str) -> Manifest:
    return {"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def own(index: str) -> Manifest:
    return field(f"metadata.annotations['dovetail.dev/visible-devices.{index}']")


def of_map(kind: str) -> Manifest:
    return {"name": VARIABLE, "valueFrom": {kind: {"name": "mine", "key": "k", "optional": True}}}


def asking(resource: str, amount: str | int) -> Manifest:
    return env(VOID, resources={"limits": {resource: amount}})


def mounting(path: str, **more: Any) -> Manifest:
    return {**env(VOID), "volumeMounts": [{"name": "v", "mountPath": path}], **more}


# Containers that skip the webhook, by their pod's label and by having the variable: the policy alone judges them.
OPEN = "must have NVIDIA_VISIBLE_DEVICES once"
GRANTS = "must not set NVIDIA_VISIBLE_DEVICES"
NONE = "asks 0 of a vendor's devices"
MOUNTS = "must not mount anything at nvidia-container-devices"
SHAPES: Final[list[tuple[Manifest, str]]] = [
    (env(VOID), ""),
    (env(own("0")), ""),
    # Another container's devices are the same pod's.
    (env(own("7")), ""),
    (env(VOID, envFrom=[FROM_MAP]), ""),
    (env(said("void ")), OPEN),
    (env(said("VOID")), OPEN),
    (env(said("none")), OPEN),
    (env(said("")), OPEN),
    (env(said("$(X)"), said("all", "X")), OPEN),
    (env(said("void,all")), OPEN),
    (env(said("nvidia.com/gpu=all")), OPEN),
    (env(VOID, said("all")), OPEN),
    (env(said("all"), VOID), OPEN),
    (env(own("0"), own("0")), OPEN),
    (env(own("0x")), OPEN),
    (env(own("")), "name part must consist"),
    (env(field("metadata.annotations['mine']")), OPEN),
    (env(field("metadata.annotations['dovetail.dev/visible-devices']")), OPEN),
    (env(field("metadata.annotations['xdovetail.dev/visible-devices.0']")), OPEN),
    (env(field("metadata.labels['dovetail.dev/visible-devices.0']")), OPEN),
    (env(field("metadata.name")), OPEN),
    (env(of_map("configMapKeyRef")), OPEN),
    (env(of_map("secretKeyRef")), OPEN),
    (env({"name": VARIABLE, "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}), OPEN),
    (env(VOID, said("all", "AMD_VISIBLE_DEVICES")), GRANTS),
    (env(VOID, said("0", "ASCEND_VISIBLE_DEVICES")), GRANTS),
    (env(VOID, **ONE), GRANTS),
    (env(own("0"), **ONE), GRANTS),
    (env(said("X"), envFrom=[FROM_MAP], **ONE), GRANTS),
    (ONE, ""),
    ({**ONE, "envFrom": [FROM_MAP]}, GRANTS),
    ({**ONE, "envFrom": [{**FROM_MAP, "prefix": "NVIDIA_"}]}, GRANTS),
    ({**ONE, "envFrom": [{**FROM_MAP, "prefix": "A"}]}, GRANTS),
    ({**ONE, "envFrom": [{"secretRef": {"name": "mine", "optional": True}}]}, GRANTS),
    ({**ONE, "envFrom": [{**FROM_MAP, "prefix": "APP_"}]}, ""),
    ({**ONE, "envFrom": [{**FROM_MAP, "prefix": "APP_"}, FROM_MAP]}, GRANTS),
    (asking("nvidia.com/gpu", 0), NONE),
    (asking("nvidia.com/gpu", "0k"), NONE),
    (asking("nvidia.com/gpu", "0.0"), NONE),
    (asking("amd.com/gpu", "0"), NONE),
    (asking("nvidia.com/gpu", "-1"), "must be greater than or equal to 0"),
    (asking("nvidia.com/gpu", "0.5"), "must be an integer"),
    (asking("nvidia.com/gpu", "1n"), "must be an integer"),
    (asking("nvidia.com/hostdev", "1"), ""),
    (asking("amd.com/gpu", "1"), ""),
    (env(said("all"), resources={"limits": {"nvidia.com/hostdev": "1"}}), OPEN),
    (env(said("all"), resources={"limits": {"amd.com/gpu": "1"}}), OPEN),
    (env(said("all"), resources={"requests": {"nvidia.com/gpu": "1"}}), "Limit must be set"),
    (mounting("/var/run/nvidia-container-devices/all"), MOUNTS),
    (mounting("/var/run/nvidia-container-devices"), MOUNTS),
    (mounting("/run/nvidia-container-devices/all"), MOUNTS),
    (mounting("//var/./run//nvidia-container-devices/cdi/nvidia.com/gpu/all"), MOUNTS),
    (mounting("/var/run/x/../nvidia-container-devices/GPU-1"), MOUNTS),
    (mounting("var/run/nvidia-container-devices/0"), MOUNTS),
    (mounting("/var/run/nvidia-container-devices/all", subPath="x"), MOUNTS),
    (mounting("/var/run/other"), ""),
]  # fmt: skip


async def test_a_shape_of_one_s_own_is_judged_by_the_policies_alone(
    mallory: Client, client: Client, namespace: str, sandbox: Cluster
) -> None:
    """The Job controller's pods go past the webhook where every container has the variable."""
    tried = list(itertools.product(SHAPES, EVERY_CLASS))
    pods = [
        make_pod(container, metadata=OF_A_JOB, runtimeClassName=name, volumes=[VOLUME])
        for (container, _), name in tried
    ]
    async with the_job_controller(client, sandbox=sandbox) as controller:
        answers = await side_by_side([(controller, pod) for pod in pods], namespace=namespace)
    wrong = []
    for ((container, sentence), name), answer in zip(tried, answers, strict=True):
        refused = answer if isinstance(answer, str) else ""
        as_wished = sentence in refused and bool(sentence) == bool(refused)
        seen = "" if isinstance(answer, str) else harm(answer, nvidia=True)
        wrong += [] if as_wished and not seen else [f"{name}: {container}: {refused or 'let in'} {seen}"]
    assert not wrong, "\n".join(wrong)
    await others_go_on(client)


async def test_nobody_puts_a_pod_by_name_on_a_node_where_no_plugin_says_what_it_sees(
    mallory: Client, namespace: str
) -> None:
    """Kubelet leaves out what its node does not advertise, and the image's variable would count."""
    for name in EVERY_CLASS:
        pod = make_pod(ONE, runtimeClassName=name, nodeName="v100-0")
        assert "must leave its node to the scheduler" in await refusal(mallory, pod, namespace=namespace)
    void = make_pod(env(VOID), runtimeClassName="nvidia", nodeName="v100-0")
    assert await refusal(mallory, void, namespace=namespace) == ""


async def test_an_ephemeral_container_sees_nothing(mallory: Client, namespace: str) -> None:
    """In a pod of each class, of a plugin's devices too: whatever comes in is closed."""

    async def debug(number: int, runtime: str, main: Manifest, tried: Manifest) -> str:
        pod = make_pod(main, runtimeClassName=runtime, nodeSelector={"none": "such"}, volumes=[VOLUME])
        pod["metadata"]["name"] = name = f"p{number}"
        await mallory.create(PODS, body=pod, as_type=Manifest, namespace=namespace)
        patch = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none", **tried}]}}
        try:
            stored = await mallory.patch(
                PODS, name=name, patch=patch, as_type=Manifest, namespace=namespace, subresource="ephemeralcontainers"
            )
        except KubeError as error:
            return "" if OPEN in str(error) or MOUNTS in str(error) else str(error)
        return harm(stored, nvidia=runtime != OTHER_CLASS)

    grants = [*ENVIRONMENTS.values(), mounting("/var/run/nvidia-container-devices/all"), env(VOID)]
    tried = list(itertools.product((*EVERY_CLASS, OTHER_CLASS), (env(VOID), ONE), grants))
    found = await asyncio.gather(*(debug(number, *each) for number, each in enumerate(tried)))
    assert not [f"{each}: {wrong}" for each, wrong in zip(tried, found, strict=True) if wrong]


CDI_KEYS: Final = (
    "nvidia.cdi.k8s.io", "nvidia.cdi.k8s.io/pod", "nvidia.cdi.k8s.io/container.t0", "cdi.k8s.io/mine",
    "cdi.k8s.io", "amd.cdi.k8s.io/pod",
)  # fmt: skip
OTHER_KEYS: Final = ("cdi.kubevirt.io/storage", "example.org/cdi.k8s.io", "mycdi.k8s.io/x")
CDI = "would give the pod devices past Dovetail"


@pytest.mark.parametrize("key", CDI_KEYS)
async def test_no_pod_has_an_annotation_by_which_a_runtime_s_plugin_gives_devices(
    mallory: Client, client: Client, namespace: str, key: str
) -> None:
    wanted = {key: "nvidia.com/gpu=all"}
    # On none of our classes, as the plugin needs none; and from an administrator too.
    for who in (mallory, client):
        assert CDI in await refusal(who, make_pod({}, metadata={"annotations": wanted}), namespace=namespace)
    assert await refusal(client, make_pod({}, metadata={"annotations": wanted}), namespace="kube-system") == ""
    pod = make_pod({}, nodeSelector={"none": "such"})
    stored = await mallory.create(PODS, body=pod, as_type=Pod, namespace=namespace)
    for account, subresource in ((mallory, ""), (client, "status")):
        with pytest.raises(KubeError, match=CDI):
            await account.patch(
                PODS, name="p", patch={"metadata": {"annotations": wanted}}, as_type=Pod, namespace=namespace,
                subresource=subresource,
            )  # fmt: skip
    with pytest.raises(KubeError, match=CDI):
        await client.bind(stored, node="v100-0", annotations=wanted, deadline_seconds=10)


@pytest.mark.parametrize("key", OTHER_KEYS)
async def test_other_annotations_are_the_user_s(mallory: Client, namespace: str, key: str) -> None:
    assert await refusal(mallory, make_pod({}, metadata={"annotations": {key: "x"}}), namespace=namespace) == ""


async def test_the_pods_of_a_gpujob_see_their_own_devices_alone_whatever_its_template_says(
    mallory: Client, client: Client, namespace: str, sandbox: Cluster
) -> None:
    """Each template is judged, and built as the operator does; whose pods the Job controller then makes."""
    resources = (*PLUGINS, "nvidia.com/anything", names.GPU_MILLI)
    refused, built = [], []
    for amount, resource, said_by, kind in itertools.product(
        "01", resources, ENVIRONMENTS.values(), ("containers", "initContainers")
    ):
        side = {"name": "side", "image": "none", "resources": {"limits": {resource: amount}}, **said_by}
        main = {"name": "main", "image": "none", **ENVIRONMENTS["all"]}
        spec = {"containers": [main], "runtimeClassName": "fast"}
        spec[kind] = [*spec.get(kind, []), side]
        job = make_job("x", gpu="0.1", template={"metadata": {}, "spec": spec})
        try:
            ask = ask_of_job(job, ranking=DEFAULT_RANKING)
        except RequestError:
            refused.append((amount, resource))
            continue
        template = build_job(job, ask=ask, number=1)["spec"]["template"]
        owners = OF_A_JOB["ownerReferences"]
        built.append({**template, "metadata": {**template["metadata"], "name": "p", "ownerReferences": owners}})
    assert set(refused) == {("0", each) for each in resources[:3]} | {("1", each) for each in PLUGINS}
    async with the_job_controller(client, sandbox=sandbox) as controller:
        answers = await side_by_side([(controller, pod) for pod in built], namespace=namespace)
    for pod, answer in zip(built, answers, strict=True):
        assert not isinstance(answer, str), f"{pod}: {answer}"
        assert harm(answer, nvidia=True) == ""


async def test_a_gpujob_with_a_sidecar_that_asks_no_devices_is_invalid(
    mallory: Client, client: Client, namespace: str
) -> None:
    job = manifest("x", gpu="0.1")
    side = {"name": "side", "image": "none", "resources": {"limits": {"nvidia.com/anything": "0"}}}
    job["spec"]["template"]["spec"]["containers"].append(side | ENVIRONMENTS["all"])
    await mallory.create(GPUJOBS, body=job, as_type=GPUJob, namespace=namespace)
    jobs = Jobs(client, namespace=namespace)
    status = await jobs.until("x", lambda status: status.reason == "Invalid")
    assert 'container "side": it asks nvidia.com/anything: 0, which gives it no device' in status.message
    await jobs.clear()
    await others_go_on(client)


REFUSED_WITHOUT_PODS: Final = "may not create pods in namespace"


async def test_who_may_not_create_pods_gets_none_by_a_gpujob(
    mallory: Client, client: Client, namespace: str, sandbox: Cluster
) -> None:
    """eve has `dovetail-edit` and `dovetail-view`: by a GPUJob she would be `boss`, the namespace's administrator."""
    await client.create(SERVICEACCOUNTS, body={"metadata": {"name": "boss"}}, as_type=Manifest, namespace=namespace)
    await bind_role(client, account="boss", kind="ClusterRole", role="admin", namespace=namespace)
    secret = {"metadata": {"name": "treasure"}, "stringData": {"word": "theirs"}}
    await client.create(SECRETS, body=secret, as_type=Manifest, namespace=namespace)
    stolen = {
        "serviceAccountName": "boss",
        "containers": [{"name": "main", "image": "busybox", "envFrom": [{"secretRef": {"name": "treasure"}}]}],
    }
    async with an_account("eve", client, rules=[], namespace=namespace, sandbox=sandbox) as eve:
        for role in ("dovetail-view", "dovetail-edit"):
            await bind_role(client, account="eve", kind="ClusterRole", role=role, namespace=namespace)
        async with asyncio.timeout(60):
            while REFUSED_WITHOUT_PODS not in (told := await creating(eve, stolen, namespace=namespace)):
                assert "cannot create resource" in told, told
                await asyncio.sleep(0.1)
        assert (
            f"serviceaccount:{namespace}:eve {REFUSED_WITHOUT_PODS} {namespace}, so it may not create GPUJobs" in told
        )
        await mallory.create(GPUJOBS, body=manifest("x", suspend=True), as_type=GPUJob, namespace=namespace)
        patch: Manifest = {"spec": {"template": {"spec": stolen}}}
        with pytest.raises(KubeError, match="so it may not change what a GPUJob runs there"):
            await eve.patch(GPUJOBS, name="x", patch=patch, as_type=Manifest, namespace=namespace)
        # What runs no other pod is still hers.
        for change in ({"priority": 1}, {"suspend": False}, {"cancel": True}):
            await eve.patch(GPUJOBS, name="x", patch={"spec": change}, as_type=GPUJob, namespace=namespace)
    await client.delete(GPUJOBS, name="x", namespace=namespace)


async def creating(account: Client, spec: Manifest, *, namespace: str) -> str:
    """The sentence with which a GPUJob with this pod is refused; empty where it is taken."""
    job = manifest("y")
    job["spec"]["template"]["spec"] = spec
    try:
        await account.create(GPUJOBS, body=job, as_type=GPUJob, namespace=namespace, dry_run=True)
    except KubeError as error:
        return str(error)
    return ""


async def test_a_pod_with_a_plugin_s_container_and_one_of_ours_has_no_place(mallory: Client, namespace: str) -> None:
    ours = {"resources": {"limits": {names.GPU_MILLI: "500"}}}
    assert "a pod's GPUs are of one kind" in await refusal(mallory, make_pod(ours, ONE), namespace=namespace)
    claims = {"resources": {"claims": [{"name": "c"}]}}
    claim = [{"name": "c", "resourceClaimTemplateName": "x"}]
    answer = await attempt(
        mallory, make_pod(claims, runtimeClassName="nvidia", resourceClaims=claim), namespace=namespace
    )
    assert not isinstance(answer, str)
    assert answer["spec"]["containers"][0]["env"] == [VOID]


async def test_a_large_pod_is_judged_within_what_the_api_server_lets_a_policy_cost(
    mallory: Client, namespace: str
) -> None:
    """More containers, variables and mounts than people write; beyond the budget the API server refuses a pod."""
    words = [said("x" * 100, f"SOME_VARIABLE_{at}") for at in range(300)]
    volumes = [{"name": f"v{at}", "emptyDir": {}} for at in range(30)]
    mounts = [{"name": each["name"], "mountPath": f"/some/where/{each['name']}"} for each in volumes]
    large = {**env(VOID, *words), "volumeMounts": mounts}
    for name in (None, *EVERY_CLASS):
        pod = make_pod(*[large] * 20, volumes=volumes, runtimeClassName=name)
        assert await refusal(mallory, pod, namespace=namespace) == ""
