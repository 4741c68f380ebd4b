"""Runs the chart's containers as local processes with their own command lines. Pure.

What kubelet provides is mapped to this machine: files of mounted ConfigMaps and Secrets to copies, empty volumes to
folders, the service account to a kubeconfig, the downward API to suitable values.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dovetail_sandbox.errors import ChartError, InvalidInputError
from dovetail_sandbox.installed.chart import Manifest, Rendered
from dovetail_sandbox.state import Component

_REFERENCE: Final = re.compile(r"\$\((\w+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Places on this machine.

    `program` returns the path of a command, `kubeconfig` that of a container's kubeconfig.
    """

    folder: Path
    program: Callable[[str], Path]
    kubeconfig: Callable[[str], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedSecret:
    """A mounted Secret that the chart does not create, and the folder for its files."""

    name: str
    folder: Path


def secrets_of_others(rendered: Rendered, *, place: Place) -> list[MountedSecret]:
    """Return the mounted Secrets that are created while the sandbox runs."""
    return [
        MountedSecret(name=secret["secretName"], folder=_volume_folder(workload, volume=volume["name"], place=place))
        for workload in rendered.workloads
        for volume in _pod(workload).get("volumes") or []
        if (secret := volume.get("secret")) and not rendered.has("Secret", name=secret["secretName"])
    ]


def files(rendered: Rendered, *, place: Place) -> dict[Path, str]:
    """Return each file of the chart's mounted ConfigMaps and Secrets, by the path of its copy."""
    found: dict[Path, str] = {}
    for workload in rendered.workloads:
        for volume in _pod(workload).get("volumes") or []:
            contents: dict[str, str] = {}
            if config_map := volume.get("configMap"):
                contents = rendered.files_of("ConfigMap", name=config_map["name"])
            secret = volume.get("secret")
            if secret and rendered.has("Secret", name=secret["secretName"]):
                contents = rendered.files_of("Secret", name=secret["secretName"])
            target = _volume_folder(workload, volume=volume["name"], place=place)
            found |= {target / key: text for key, text in contents.items()}
    return found


def service_account(workload: Manifest, *, container: str, known: set[str]) -> str:
    """Return a container's service account.

    A pod has one account for all containers. Here each container has its own if the chart has one for it.
    """
    own = f"dovetail-{container}"
    return own if own in known else str(_pod(workload).get("serviceAccountName") or "default")


def components(rendered: Rendered, *, place: Place, without: Collection[str] = ()) -> Iterator[tuple[str, Component]]:
    """Yield each container as a component with its service account.

    Raises `ChartError` for a part without an equivalent here.
    """
    accounts = rendered.service_accounts()
    for workload, container in _containers(rendered):
        if container["name"] not in without:
            account = service_account(workload, container=container["name"], known=accounts)
            yield account, _component(workload, container=container, place=place)


def check_names(rendered: Rendered, *, names: Collection[str], option: str) -> None:
    """Raise `InvalidInputError` for a name that no container of the chart has."""
    present = [container["name"] for _, container in _containers(rendered)]
    if unknown := [name for name in names if name not in present]:
        raise InvalidInputError(option, value=unknown[0], allowed=", ".join(present))


def _containers(rendered: Rendered) -> list[tuple[Manifest, Mapping[str, Any]]]:
    return [(workload, container) for workload in rendered.workloads for container in _pod(workload)["containers"]]


def _component(workload: Manifest, *, container: Mapping[str, Any], place: Place) -> Component:
    name = str(container["name"])
    if not container.get("command"):
        raise ChartError(f"Container {name} of {workload['metadata']['name']} has no command to run as a process.")
    env = {entry["name"]: _value(entry, workload=workload, container=name) for entry in container.get("env") or []}
    mounts = _mounts(workload, container=container, place=place)

    def local(text: str) -> str:
        return _mapped(_REFERENCE.sub(lambda found: env.get(found[1], found[0]), text), mounts=mounts)

    program, *arguments = [str(word) for part in ("command", "args") for word in container.get(part) or []]
    return Component(
        name=name,
        argv=[str(place.program(program)), *map(local, arguments)],
        env={
            **{key: _mapped(value, mounts=mounts) for key, value in env.items()},
            "KUBECONFIG": str(place.kubeconfig(name)),
        },
        log=str(place.folder / "logs" / f"{name}.log"),
        ready_url=_ready_url(container),
    )


def _ready_url(container: Mapping[str, Any]) -> str:
    get = (container.get("readinessProbe") or {}).get("httpGet")
    if not get:
        return ""
    ports = {port.get("name"): port["containerPort"] for port in container.get("ports") or []}
    port = ports.get(get["port"], get["port"])
    return f"{get.get('scheme', 'HTTP').lower()}://127.0.0.1:{port}{get.get('path', '/')}"


def _value(entry: Mapping[str, Any], *, workload: Manifest, container: str) -> str:
    if "value" in entry:
        return str(entry["value"])
    field = (entry.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath")
    values = {
        "metadata.namespace": workload["metadata"].get("namespace", "default"),
        "metadata.name": f"{workload['metadata']['name']}-sandbox",
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
    }
    if field not in values:
        raise ChartError(f"Container {container} takes {entry['name']} from {field or 'a source'} that no sandbox has.")
    return str(values[field])


def _mounts(workload: Manifest, *, container: Mapping[str, Any], place: Place) -> dict[str, Path]:
    """Return mount paths and their local folders or files.

    Paths of the machine itself stay as they are.
    """
    own = {volume["name"] for volume in _pod(workload).get("volumes") or [] if "hostPath" not in volume}
    return {
        mount["mountPath"].rstrip("/"): _volume_folder(workload, volume=mount["name"], place=place)
        / mount.get("subPath", "")
        for mount in container.get("volumeMounts") or []
        if mount["name"] in own
    }


def _mapped(text: str, *, mounts: Mapping[str, Path]) -> str:
    for path in sorted(mounts, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(path)}(?=/|$)", str(mounts[path]).replace("\\", r"\\"), text)
    return text


def _volume_folder(workload: Manifest, *, volume: str, place: Place) -> Path:
    return place.folder / "volumes" / str(workload["metadata"]["name"]) / volume


def _pod(workload: Manifest) -> dict[str, Any]:
    return dict(workload["spec"]["template"]["spec"])
