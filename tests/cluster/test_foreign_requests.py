"""HAMi's and KAI's requests as they stand: published manifests, and pods of our own for what these leave out."""

import asyncio
import hashlib
import os
import subprocess
import tomllib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import Device, GPUNode
from dovetail.api.resources import GPUNODES, NODES, PODS, Resource
from dovetail.gpu import mig
from dovetail.gpu.models import model_of
from dovetail.gpu.request import parse
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.pods.allocation import Allocation, allocation_in
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.nodes.node_sets import SimulatedNode
from tests import commands
from tests.cluster.jobs import run as run_command
from tests.cluster.test_chart import run
from tests.cluster.test_plain_requests import bound, create, make_pod, told, translating, until

__all__ = ["translating"]
pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(os.environ.get("DOVETAIL_FOREIGN") or ROOT.parent / "shared" / "foreign")
VOLUMES: Final = Resource(plural="persistentvolumes", kind="PersistentVolume", namespaced=False)
DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published file and its verdict, as foreign.toml has them."""

    name: str
    digest: str
    requests: tuple[str, ...] = ()
    alone: int = 0
    refused: str = ""
    no_kind: str = ""


def published() -> list[Published]:
    entries = tomllib.loads(Path(__file__).with_name("foreign.toml").read_text(encoding="utf-8"))
    return [
        Published(name=name, **{**entry, "requests": tuple(entry.get("requests", ()))})
        for name, entry in entries.items()
    ]


ALL: Final = published()
# The others have kinds whose controllers create their pods.
_BY_CONTROLLERS: Final = ("hami/example.yaml", "hami/vllm_cross_vgpu.yaml", "kai/batch-job-min-member.yaml")
OF_PODS: Final = [each for each in ALL if not each.no_kind and each.name not in _BY_CONTROLLERS]
FILES: Final = pytest.mark.parametrize("file", ALL, ids=[each.name for each in ALL])


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder of the published files, which must be where DOVETAIL_FOREIGN names it."""
    if FOLDER.is_dir():
        return FOLDER
    message = f"NOT COMPARED WITH THE FILES OF HAMI AND KAI: none are in {FOLDER}; set DOVETAIL_FOREIGN to their folder"
    if "DOVETAIL_FOREIGN" in os.environ:
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture
async def partitioned(client: Client) -> AsyncIterator[None]:
    """A node with instances of the profile that HAMi's example of MIG names."""
    node = SimulatedNode(
        name="partitioned", cpu_milli=64_000, memory_mib=262_144, model="A100", devices=1, device_memory_mib=40_960,
        mig=("2x3g.20gb",),
    )  # fmt: skip
    await client.create(NODES, body=kwok.manifest(node), as_type=Node)

    async def reported() -> bool:
        return any(name == node.name and found for name, found in (await _devices(client)).items())

    await until(reported, what="the node reports its instances")
    yield
    await client.delete(NODES, name=node.name)


@pytest.fixture
async def volume(client: Client) -> AsyncIterator[None]:
    """A volume for the claim of HAMi's example of vLLM."""
    spec = {
        "capacity": {"storage": "60Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/srv/cache"},
        "persistentVolumeReclaimPolicy": "Retain",
    }  # fmt: skip
    # A volume that was bound lasts until its claim is gone.
    name = f"foreign-{uuid.uuid4().hex[:8]}"
    await client.create(VOLUMES, body={"metadata": {"name": name}, "spec": spec}, as_type=Manifest)
    yield
    await client.delete(VOLUMES, name=name)


async def _devices(client: Client) -> dict[str, list[Device]]:
    listed, _ = await client.list(GPUNODES, as_type=GPUNode)
    return {each.metadata.name: each.status.devices for each in listed}


async def _pods(client: Client, *, namespace: str) -> list[Pod]:
    page = await client.list(PODS, as_type=Pod, namespace=namespace)
    return list(page.items)


async def _apply(path: Path, *, sandbox: Cluster, namespace: str) -> subprocess.CompletedProcess[str]:
    where = (f"--kubeconfig={sandbox.kubeconfig}", f"--namespace={namespace}")
    return await asyncio.to_thread(run, "kubectl", *where, "apply", "-f", path)


def _unlike(allocation: Allocation, *, text: str, devices: list[Device]) -> list[str]:
    """In what the devices of an allocation are not as a request says."""
    request, there = parse(text), {each.uuid: each for each in devices}
    problems = [] if len(allocation.devices) == request.count else [f"{len(allocation.devices)} devices"]
    for held in allocation.devices:
        device = there[held.uuid]
        model = model_of(mig.model_of(device.model), memory_mib=device.memory_mib)
        wanted = request.memory_on(device.memory_mib - device.reserved_mib)
        problems += [
            problem
            for problem, is_so in (
                (f"share {held.share_milli}", held.share_milli == request.share_milli),
                (f"model {model}", request.admits(model)),
                (f"profile {held.mig}", (held.mig or "") == request.mig),
                (f"memory {held.memory_mib}", wanted in {None, held.memory_mib}),
            )
            if not is_so
        ]
    return problems


@FILES
def test_the_file_is_the_one_that_was_read(file: Published, folder: Path) -> None:
    assert hashlib.sha256((folder / file.name).read_bytes()).hexdigest()[:DIGITS] == file.digest


def test_every_published_file_has_a_verdict(folder: Path) -> None:
    there = {str(path.relative_to(folder)) for system in ("hami", "kai") for path in folder.glob(f"{system}/*.yaml")}
    assert there == {each.name for each in ALL}


@FILES
@pytest.mark.usefixtures("partitioned", "volume")
async def test_a_published_manifest_is_placed_or_refused_in_a_sentence(
    file: Published, folder: Path, client: Client, translating: str, sandbox: Cluster
) -> None:
    done = await _apply(folder / file.name, sandbox=sandbox, namespace=translating)
    if file.refused or file.no_kind:
        assert done.returncode
        assert (file.refused or f'no matches for kind "{file.no_kind}"') in done.stderr
        return
    assert done.returncode == 0, done.stderr

    async def all_there() -> list[Pod] | None:
        found = await _pods(client, namespace=translating)
        ready = [each for each in found if each.spec.node_name or file.alone]
        return ready if len(ready) == (len(file.requests) or file.alone) else None

    pods = await until(all_there, what=f"the pods of {file.name} have nodes")
    texts = [each.metadata.annotations.get(names.REQUEST) for each in pods]
    assert sorted(filter(None, texts)) == sorted(file.requests)
    devices = await _devices(client)
    for pod, text in zip(pods, texts, strict=True):
        if text is not None:
            allocation = allocation_in(pod.metadata.annotations)
            assert allocation is not None
            assert _unlike(allocation, text=text, devices=devices[allocation.node]) == []


async def test_elsewhere_explain_says_how_the_pods_of_each_file_get_gpus_of_dovetail(
    folder: Path, client: Client, namespace: str, sandbox: Cluster
) -> None:
    label = f"kubectl label namespace {namespace} {names.TRANSLATE}=true"
    wrong: dict[str, str] = {}
    for number, file in enumerate(OF_PODS):
        pods = [each for each in yaml.safe_load_all((folder / file.name).read_text()) if each["kind"] == "Pod"]
        assert pods, file.name
        for body in pods:
            # Files use the same names.
            body["metadata"]["name"] = f"{body['metadata']['name']}-{number}"
            pod = await create(client, body, namespace=namespace)
            words = ("explain", "pod", pod.metadata.name, "--kubeconfig", str(sandbox.kubeconfig), "-n", namespace)
            done = await run_command(*commands.dovetail(), *words)
            cure = "Dovetail would refuse them" if file.refused else label
            if (cure in " ".join(done.stdout.split())) == bool(file.alone):
                wrong[f"{file.name} {pod.metadata.name}"] = done.stdout + done.stderr
    assert wrong == {}


async def test_an_event_elsewhere_names_the_cure_for_hami_s_resources(client: Client, namespace: str) -> None:
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000"}
    await create(client, make_pod("part", {"name": "main", "resources": {"limits": limits}}), namespace=namespace)
    message = await told(client, namespace=namespace, name="part", reason="NotAskedOfDovetail")
    assert f'{names.REQUEST}.main: "3000M,1" and {names.MODE}: "TimeShared"' in message


async def test_volcano_s_parts_and_several_of_kai_s_devices_are_placed(client: Client, translating: str) -> None:
    limits = {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "25"}
    pods = (
        make_pod("volcano", {"name": "main", "resources": {"limits": limits}}),
        make_pod("kai", {"name": "main"}, annotations={"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"},
                 schedulerName="kai-scheduler"),
    )  # fmt: skip
    for pod, memory in zip(pods, (3000, None), strict=True):
        await create(client, pod, namespace=translating)
        found = await bound(client, namespace=translating, name=pod["metadata"]["name"])
        allocation = allocation_in(found.metadata.annotations)
        assert allocation is not None
        assert [(each.share_milli, memory in {None, each.memory_mib}) for each in allocation.devices] == [
            (250, True)
        ] * 2


@pytest.mark.parametrize("opted_in", [True, False])
async def test_a_resource_that_stays_beside_a_request_is_refused(
    client: Client, namespace: str, translating: str, opted_in: bool
) -> None:
    left = {"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "3000"}}}
    pod = make_pod("left", left, annotations={names.REQUEST: "3000M,0.5"})
    with pytest.raises(KubeError, match=r"nvidia\.com/gpumem: 3000.*no node of Dovetail has this"):
        await create(client, pod, namespace=translating if opted_in else namespace)


async def test_a_pod_without_gpus_on_kai_s_scheduler_is_left_to_it(client: Client, translating: str) -> None:
    pod = await create(client, make_pod("cpu", {"name": "main"}, schedulerName="kai-scheduler"), namespace=translating)
    assert (pod.spec.scheduler_name, pod.metadata.annotations) == ("kai-scheduler", {})


async def test_exclusion_and_percent_hold_for_a_pod_of_dovetail_s_own(client: Client, namespace: str) -> None:
    await create(
        client,
        make_pod("own", {"name": "main"}, annotations={names.REQUEST: "50%,0.5(!T4,!V100)"}),
        namespace=namespace,
    )
    found = await bound(client, namespace=namespace, name="own")
    allocation = allocation_in(found.metadata.annotations)
    assert allocation is not None
    assert (allocation.node, [each.memory_mib for each in allocation.devices]) == ("a100-0", [40_960])
