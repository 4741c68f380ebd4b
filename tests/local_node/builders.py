"""Pods as the local node sees them; a test names only what matters."""

from pathlib import Path
from typing import Any

from dovetail import names
from dovetail.api.meta import OwnerReference
from dovetail_local_node.launch import Place
from dovetail_local_node.pod_object import Container, EnvSource, EnvVar, FieldRef, LocalMeta, LocalPod, LocalPodSpec

UID = "11111111-2222-3333-4444-555555555555"


def variable(name: str, value: str = "", *, field: str = "") -> EnvVar:
    return EnvVar(name=name, value=value, value_from=EnvSource(field_ref=FieldRef(field_path=field)) if field else None)


def pod(
    *command: str,
    env: list[EnvVar] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    owner: str = "train",
    directory: str = "",
    containers: int = 1,
) -> LocalPod:
    owners = [OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid="1", controller=True)] if owner else []
    container = Container(name="main", command=list(command), env=env or [], working_dir=directory)
    return LocalPod(
        metadata=LocalMeta(
            name="train-0-abcde",
            namespace="default",
            uid=UID,
            annotations=annotations or {},
            labels={names.LABEL_JOB: "train", names.LABEL_JOB_NUMBER: "42", **(labels or {})},
            owner_references=owners,
        ),
        spec=LocalPodSpec(node_name="local", containers=[container] * containers),
    )


def place(folder: Path, **changes: Any) -> Place:
    known: dict[str, Any] = {"user": "alice", "node": "local", "address": "127.0.0.1", "logs": folder / "logs"}
    return Place(**{**known, "home": folder, **changes})
