"""Pods as the local node sees them; a test names only what matters."""

import uuid
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import EnvSource, EnvVar, FieldRef
from dovetail.api.meta import OwnerReference
from dovetail_local_node.launch import Place
from dovetail_local_node.pod_object import (
    Container,
    LocalMeta,
    LocalPod,
    LocalPodSpec,
    Mount,
    Volume,
)
from dovetail_operator.manifests.batch_job import with_notice

# Of this run of the tests alone: a pod's processes are found, and killed, by its UID on the whole machine.
UID = str(uuid.uuid4())


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
    controller = OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid="1", controller=True)
    container = Container(name="main", command=list(command), env=env or [], working_dir=directory)
    return LocalPod(
        metadata=LocalMeta(
            name="train-0-abcde",
            namespace="default",
            uid=UID,
            annotations=annotations or {},
            labels={names.LABEL_JOB: "train", names.LABEL_JOB_NUMBER: "42", **(labels or {})},
            owner_references=(controller,) if owner else (),
        ),
        spec=LocalPodSpec(node_name="local", containers=[container] * containers),
    )


def noticed(made: LocalPod, *, at: str = "") -> LocalPod:
    """The pod with the operator's file that shows a notice of preemption, which says `at`."""
    spec = with_notice({"containers": [{"name": "main"}]})
    container = replace(
        made.spec.containers[0], volume_mounts=convert(spec["containers"][0]["volumeMounts"], list[Mount])
    )
    return replace(
        made,
        metadata=replace(made.metadata, annotations={names.PREEMPTING_AT: at}),
        spec=replace(made.spec, containers=[container], volumes=convert(spec["volumes"], list[Volume])),
    )


def place(folder: Path, **changes: Any) -> Place:
    known: dict[str, Any] = {"user": "alice", "node": "local", "address": "127.0.0.1", "logs": folder / "logs"}
    return Place(**{**known, "home": folder, **changes})
