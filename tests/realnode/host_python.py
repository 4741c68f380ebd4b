"""A deployable of the chart as a pod of the real node without an image: the machine's own Python, mounted from it.

So what runs is a container with the account, user, capabilities and mounts that the chart gives it, and the code that
is being tested; only image and program differ.
"""

import sys
from pathlib import Path
from typing import Any

from dovetail_sandbox import realnode
from dovetail_sandbox.installed import chart
from dovetail_sandbox.realnode.credentials import API_SERVER_NAME

ROOT = Path(__file__).parents[2]
_IMAGE = "dovetail.local/env:dev"


def pod_of(
    workload: dict[str, Any], *, module: str, environment: dict[str, str] | None = None, init_module: str = ""
) -> dict[str, Any]:
    """The pod of a DaemonSet of one container, bound to the real node, that runs a module and never starts again.

    `init_module` is what an init container runs before.
    """
    spec = dict(workload["spec"]["template"]["spec"])
    (container,) = spec["containers"]
    # The API server's certificate names the service, not its address.
    said = {
        "KUBERNETES_SERVICE_HOST": API_SERVER_NAME,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        **(environment or {}),
    }
    spec |= {
        "nodeName": realnode.NODE_NAME,
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "containers": [_running(container, module=module, environment=said)],
        "initContainers": [
            _running(each, module=init_module, environment=said) for each in spec.get("initContainers", [])
        ],
        "volumes": [*spec["volumes"], *_volumes()],
        "terminationGracePeriodSeconds": 5,
    }
    metadata = {"name": workload["metadata"]["name"], "namespace": chart.NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def with_python(pod: dict[str, Any], *, code: str) -> dict[str, Any]:
    """The pod's spec with `code` run in its one container by the machine's Python."""
    (container,) = pod["containers"]
    container = container | {"command": [sys.executable, "-u", "-c", code], "volumeMounts": _mounts()}
    return pod | {"containers": [container], "volumes": _volumes()}


def _running(container: dict[str, Any], *, module: str, environment: dict[str, str]) -> dict[str, Any]:
    return container | {
        "image": _IMAGE,
        "imagePullPolicy": "Never",
        "command": [sys.executable, "-m", module],
        "env": [*container.get("env", []), *({"name": name, "value": value} for name, value in environment.items())],
        "volumeMounts": [*container["volumeMounts"], *_mounts()],
    }


def _mounts() -> list[dict[str, Any]]:
    return [{"name": f"host-{at}", "mountPath": path, "readOnly": True} for at, path in enumerate(_folders())]


def _volumes() -> list[dict[str, Any]]:
    return [
        {"name": f"host-{at}", "hostPath": {"path": str(Path(path).resolve())}} for at, path in enumerate(_folders())
    ]


def _folders() -> list[str]:
    """Python, its libraries, and this checkout."""
    system = ["/usr", "/lib", *(["/lib64"] if Path("/lib64").exists() else [])]
    own = {str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix, ROOT)}
    return [*system, *sorted(each for each in own if each != "/usr" and not each.startswith("/usr/"))]
