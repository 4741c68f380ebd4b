"""The Helm chart: finds it, renders it with the real Helm, and splits its manifests."""

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from dovetail_sandbox.errors import ChartError

NAMESPACE: Final = "dovetail-system"
RELEASE: Final = "dovetail"
# The registry in the names of the images that images/build.sh builds.
BUILT_IMAGES: Final = "dovetail.local"
_WORKLOADS: Final = frozenset({"Deployment", "DaemonSet", "StatefulSet"})
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The chart's manifests: `workloads` run as local processes, `objects` go to the API server.

    `hooks` are the Jobs that Helm runs after an installation, and what it creates for them and deletes afterwards.
    """

    text: str
    workloads: tuple[Manifest, ...]
    objects: tuple[Manifest, ...]
    hooks: tuple[Manifest, ...] = ()

    def files_of(self, kind: Literal["ConfigMap", "Secret"], *, name: str) -> dict[str, str]:
        """Return the files of a ConfigMap or Secret.

        Raises `ChartError` if the chart does not have it.
        """
        for manifest in self.objects:
            if manifest["kind"] == kind and manifest["metadata"]["name"] == name:
                data: dict[str, str] = manifest.get("data") or {}
                return data if kind == "ConfigMap" else {key: _decoded(text) for key, text in data.items()}
        raise ChartError(f"The chart mounts {kind} {name}, but has none of that name.")

    def has(self, kind: str, *, name: str) -> bool:
        """Whether the chart creates such an object."""
        return any(each["kind"] == kind and each["metadata"]["name"] == name for each in self.objects)

    def service_accounts(self) -> set[str]:
        """The names of the chart's service accounts."""
        return {each["metadata"]["name"] for each in self.objects if each["kind"] == "ServiceAccount"}


def folder() -> Path:
    """Return the chart's folder in the checkout, or in the installed package.

    Raises `ChartError`.
    """
    package = Path(str(resources.files("dovetail_sandbox")))
    for candidate in (package.parents[1] / "helm" / "dovetail", package / "chart"):
        if (candidate / "Chart.yaml").exists():
            return candidate
    raise ChartError("The Helm chart is neither in a checkout around this package nor installed with it.")


def render(
    *,
    helm: Path,
    values: Mapping[str, object],
    values_file: Path | None = None,
    overrides: Sequence[str] = (),
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    source: Path | None = None,
) -> Rendered:
    """Render our chart, or the one in `source`, with these values, and a user's file of values and `--set` options.

    Raises `ChartError` with Helm's message.
    """
    settings = [argument for key, value in values.items() for argument in ("--set-json", f"{key}={json.dumps(value)}")]
    settings += [] if values_file is None else [f"--values={values_file}"]
    settings += [argument for override in overrides for argument in ("--set", override)]
    done = subprocess.run(
        [
            str(helm),
            "template",
            release,
            str(source or folder()),
            f"--namespace={namespace}",
            "--include-crds",
            *settings,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise ChartError(f"The chart cannot be rendered: {done.stderr.strip()}")
    return split(done.stdout)


def split(text: str) -> Rendered:
    """Split rendered manifests."""
    manifests = [manifest for manifest in yaml.safe_load_all(text) if manifest]
    return Rendered(
        text=text,
        workloads=tuple(each for each in manifests if each["kind"] in _WORKLOADS),
        objects=tuple(each for each in manifests if each["kind"] not in _WORKLOADS and not _events(each)),
        hooks=tuple(each for each in manifests if "post-install" in _events(each)),
    )


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def _events(manifest: Manifest) -> list[str]:
    """When Helm creates a hook; empty for what stays."""
    text = (manifest["metadata"].get("annotations") or {}).get("helm.sh/hook", "")
    return text.split(",") if text else []
