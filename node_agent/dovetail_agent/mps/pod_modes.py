"""A node's pods and their device modes, listed by MPS's supervisor for the volume driver.

The driver cannot ask the API server. An old list is safe: a pod's promise is fixed when the pod is bound, and a UID is
never reused. At worst a new pod is missing.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from dovetail.api.gpunodetenants import NodeTenant
from dovetail.decoding import UnreadableError, decode
from dovetail_agent.mps.state_file import replace_file


class KnownPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound to this node. `mode` is empty for a pod without a promised device."""

    namespace: str
    name: str
    mode: str = ""

    @property
    def shares(self) -> bool:
        """Whether MPS serves this pod."""
        return self.mode == "Fractional"


def path_in(directory: Path) -> Path:
    """The path of the list in MPS's folder."""
    return directory / "state" / "tenants.json"


def write(path: Path, *, tenants: Iterable[NodeTenant]) -> None:
    """Write the list, readable by root only. Raises `OSError`."""
    listed = {
        tenant.uid: KnownPod(namespace=tenant.namespace, name=tenant.name, mode=tenant.mode if tenant.devices else "")
        for tenant in tenants
    }
    replace_file(path, body=msgspec.json.encode(listed), mode=0o600)


def read(path: Path) -> Mapping[str, KnownPod] | None:
    """Return the pods by UID; None if the list is missing or unreadable."""
    try:
        return decode(path.read_bytes(), as_type=dict[str, KnownPod])
    except (OSError, UnreadableError):
        return None
