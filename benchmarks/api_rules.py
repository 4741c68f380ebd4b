"""The rules that the API server applies, from the charts of two checkouts in turns: policies, webhooks and CRDs.

A checkout's programs alone are half of what its jobs cost: the API server evaluates the rules of its CRDs and policies
for each write.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import turns
import yaml

from dovetail_sandbox import access, progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.installed import chart
from dovetail_sandbox.programs import locate

POLICIES: Final = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
WEBHOOKS: Final = ("MutatingWebhookConfiguration",)
CRDS: Final = ("CustomResourceDefinition",)
_KIND_AND_NAME = tuple[str, str]


def write(made: Cluster, *, kinds: Collection[str], other: Path | None, folder: Path) -> dict[str, Path]:
    """The objects of these kinds as files, by checkout: `this` as the sandbox has them, and `other` by its chart."""
    texts = {"this": (made.folder / "rendered.yaml").read_text(encoding="utf-8")}
    if other is not None:
        helm = locate.resolve(["helm"], report=progress.reporter())["helm"]
        values = {"image.registry": chart.BUILT_IMAGES, "simulation.enabled": True}
        texts["other"] = chart.render(helm=helm, values=values, source=other.resolve() / "helm" / "dovetail").text
    files = {}
    for name, text in texts.items():
        documents = [each for each in yaml.safe_load_all(text) if each and each["kind"] in kinds]
        files[name] = folder / f"{name}.yaml"
        files[name].write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return files


async def use(made: Cluster, *, files: Mapping[str, Path], name: str | None) -> None:
    """Put the objects of this checkout in force in place of all others; None for none."""
    wanted = _documents(files[name]) if name is not None else {}
    unwanted = {key: each for path in files.values() for key, each in _documents(path).items() if key not in wanted}
    kubectl = locate.resolve(["kubectl"], report=progress.reporter())["kubectl"]
    where = {"kubectl": kubectl, "kubeconfig": made.kubeconfig}
    if unwanted:
        await asyncio.to_thread(access.delete, list(unwanted.values()), **where)
    if wanted:
        # As the sandbox applies its chart: of another field manager, the fields that only one chart has would stay.
        rendered = chart.Rendered(text="", objects=tuple(wanted.values()), workloads=())
        await asyncio.to_thread(access.apply, rendered, **where)


async def settled(made: Cluster, *, at_most: float = 0.1, seconds: float = 3.0, patience: float = 60.0) -> None:
    """Wait for a period in which kube-apiserver takes at most this share of a core, or until patience ends.

    After a change of a CRD it builds its OpenAPI documents again.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while True:
                with turns.measured(made) as used:
                    await asyncio.sleep(seconds)
                if used.cpu_seconds["kube-apiserver"] <= at_most * used.seconds:
                    return


def _documents(path: Path) -> dict[_KIND_AND_NAME, dict[str, Any]]:
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}
