"""The cluster autoscaler's ProvisioningRequest on a sandbox: the real CRD, and a small controller in its place.

The CRD is that of the Go module k8s.io/autoscaler/cluster-autoscaler/apis, in the version that Kueue's module files pin
with its checksum. The autoscaler itself does not run here: it needs a cloud provider.
"""

import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail.api.resources import CRDS, PODTEMPLATES, PROVISIONINGREQUESTS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail_sandbox import progress
from dovetail_sandbox.programs import go_build, locate, toolchain
from tests.cluster.jobs import PATIENCE_SECONDS

MODULE: Final = "k8s.io/autoscaler/cluster-autoscaler/apis"
CRD_FILE: Final = "config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml"
_POLL_SECONDS: Final = 0.05

Body = dict[str, Any]


def crd() -> Body:
    """The project's own CRD, from its Go module."""
    go = toolchain.obtain(cache=locate.cache_folder(), report=progress.reporter())
    where, environment = go_build.module_folder("kueue"), go_build.environment()
    subprocess.run([go, "mod", "download", MODULE], cwd=where, env=environment, check=True, capture_output=True)
    command = [go, "list", "-m", "-f={{.Dir}}", MODULE]
    found = subprocess.run(command, cwd=where, env=environment, check=True, capture_output=True, text=True)
    body: Body = yaml.safe_load((Path(found.stdout.strip()) / CRD_FILE).read_text())
    return body


async def install(client: Client) -> None:
    """Install the CRD, and wait until the kind is served."""
    body = await asyncio.to_thread(crd)
    await client.apply(CRDS, name=body["metadata"]["name"], body=body, as_type=Body, field_manager="test")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await client.list(PROVISIONINGREQUESTS, as_type=Body)
            except KubeError:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return


class ClusterAutoscaler:
    """Answers the requests of one namespace by their conditions, as the autoscaler does."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def requests(self, *, count: int) -> list[Body]:
        """The requests of the namespace, once there are so many."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found, _ = await self._client.list(PROVISIONINGREQUESTS, as_type=Body, namespace=self._namespace)
                if len(found) == count:
                    return list(found)
                await asyncio.sleep(_POLL_SECONDS)

    async def template_of(self, request: Body) -> Body:
        """The pod template of a request, once the PodTemplate exists that it names."""
        (pods,) = request["spec"]["podSets"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    name = pods["podTemplateRef"]["name"]
                    found = await self._client.get(PODTEMPLATES, name=name, as_type=Body, namespace=self._namespace)
                except NotFound:
                    await asyncio.sleep(_POLL_SECONDS)
                else:
                    template: Body = found["template"]
                    return template

    async def no_templates(self) -> None:
        """Wait until the garbage collector has deleted the PodTemplates."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self._client.list(PODTEMPLATES, as_type=Body, namespace=self._namespace)).items:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)

    async def answer(self, request: Body, **messages: str) -> None:
        """Set these conditions of the request to True, with their messages."""
        conditions = [
            {
                "type": type_,
                "status": "True",
                "reason": "Test",
                "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for type_, message in messages.items()
        ]
        await self._client.patch(
            PROVISIONINGREQUESTS,
            name=request["metadata"]["name"],
            namespace=self._namespace,
            patch={"status": {"conditions": conditions}},
            as_type=Body,
            subresource="status",
        )
