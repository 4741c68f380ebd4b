"""The notice that a job is about to make way, in its pods: an annotation, and a file that shows it."""

from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound

Manifest = dict[str, Any]

_FILE: Final = "preempting-at"


async def notify(client: Client, pod: Pod, *, at: str | None) -> None:
    """Let the pod say when it is going to be ended, or that it is not; one that is gone need not know."""
    meta = pod.metadata
    patch = {"metadata": {"uid": meta.uid, "annotations": {names.PREEMPTING_AT: at}}}
    try:
        # By the status: whoever may patch a pod itself may run another image in it.
        await client.patch(PODS, meta.name, patch, as_type=Pod, namespace=meta.namespace, subresource="status")
    except (NotFound, Conflict):
        return


def with_notice(spec: Manifest) -> Manifest:
    """The pod's spec with the file /etc/dovetail/preempting-at in its first container: empty until it is told a time.

    As it is where the pod has a volume of that name or something else in that place.
    """
    first, *others = spec["containers"]
    taken = {volume.get("name") for volume in spec.get("volumes") or ()}
    places = {mount.get("mountPath") for mount in first.get("volumeMounts") or ()}
    if names.NOTICE_VOLUME in taken or names.NOTICE_FOLDER in places:
        return spec
    annotation = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{names.PREEMPTING_AT}']"}
    volume = {"name": names.NOTICE_VOLUME, "downwardAPI": {"items": [{"path": _FILE, "fieldRef": annotation}]}}
    mount = {"name": names.NOTICE_VOLUME, "mountPath": names.NOTICE_FOLDER, "readOnly": True}
    shown = {**first, "volumeMounts": [*(first.get("volumeMounts") or ()), mount]}
    return {**spec, "containers": [shown, *others], "volumes": [*(spec.get("volumes") or ()), volume]}
