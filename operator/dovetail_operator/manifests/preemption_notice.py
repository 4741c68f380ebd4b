"""The file in a pod that shows when the pod is preempted. Pure."""

from typing import Any, Final

from dovetail import names

Manifest = dict[str, Any]

_FILE: Final = "preempting-at"


def with_notice(spec: Manifest) -> Manifest:
    """Mount /etc/dovetail/preempting-at in the first container.

    The file is empty without a notice.

    Returns the spec unchanged if the pod already uses the volume's name or the mount path.
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
