"""What a container sees on a node, by the rules of kubelet and NVIDIA's runtime, at their worst.

It knows nothing of policies or webhooks: tests of these compare what they let in with it.

Kubelet builds a container's environment from the image's, the device plugins', envFrom and env, in this order, and the
last of one name wins (`kubelet_pods.go`: makeEnvironmentVariables after the plugins' Envs). NVIDIA's runtime gives what
NVIDIA_VISIBLE_DEVICES names; where mounts of /dev/null below a folder name devices these win
(nvidia-container-toolkit, `internal/config/image/cuda_image.go`). The worst is assumed of what a pod does not say: the
image says `all`, each ConfigMap holds each variable, and every mount is of /dev/null.
"""

import posixpath
from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

Manifest = dict[str, Any]
Sight = Literal["nothing", "its own", "the plugin's", "anything"]

VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"
SAFE: Final[frozenset[Sight]] = frozenset({"nothing", "its own", "the plugin's"})
_MOUNTS: Final = "/var/run/nvidia-container-devices"
# Only the Binding writes it.
_OWN: Final = "metadata.annotations['dovetail.dev/visible-devices."


def containers_of(spec: Manifest) -> Iterator[Manifest]:
    """Every container of a pod."""
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def sights(spec: Manifest, *, nvidia: bool, advertised: Collection[str]) -> dict[str, Sight]:
    """What each container of a pod sees, by name. `nvidia`: its handler is NVIDIA's runtime."""
    return {each["name"]: sight(each, nvidia=nvidia, advertised=advertised) for each in containers_of(spec)}


def sight(container: Manifest, *, nvidia: bool, advertised: Collection[str]) -> Sight:
    """What one container sees; `advertised` are the resources of NVIDIA's plugin where its pod can be scheduled."""
    if not nvidia:
        return "nothing"
    if any(_is_below_mounts(mount["mountPath"]) for mount in container.get("volumeMounts") or ()):
        return "anything"
    limits = (container.get("resources") or {}).get("limits") or {}
    seen: Sight = "anything"
    if any(name in advertised and str(amount) not in {"0", ""} for name, amount in limits.items()):
        seen = "the plugin's"
    if any(VARIABLE.startswith(source.get("prefix") or "") for source in container.get("envFrom") or ()):
        seen = "anything"
    for entry in container.get("env") or ():
        if entry["name"] == VARIABLE:
            seen = _meaning(entry)
    return seen


def _meaning(entry: Manifest) -> Sight:
    if "valueFrom" in entry:
        field = (entry["valueFrom"].get("fieldRef") or {}).get("fieldPath", "")
        return "its own" if field.startswith(_OWN) else "anything"
    return "nothing" if entry.get("value", "") in {"", "void"} else "anything"


def _is_below_mounts(path: str) -> bool:
    # Kubelet makes a relative path absolute, and the runtime cleans it.
    return posixpath.normpath(f"/{path}").replace("//", "/").startswith(f"{_MOUNTS}/")
