"""The pods of a node with the mode of their devices, as MPS's supervisor lists them for the volume driver.

The driver has no API server to ask. An old list is safe: what a pod was promised is fixed when it is bound, and a UID
is never used twice, so at worst a new pod is missing from it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from dovetail.decoding import UnreadableError, decode
from dovetail_agent.mps.state_file import replace_file
from dovetail_agent.tenants import Tenant


class KnownPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is bound to this node. `mode` is empty for a pod that was promised no device."""

    namespace: str
    name: str
    mode: str = ""

    @property
    def shares(self) -> bool:
        """Whether it is a tenant that MPS serves."""
        return self.mode == "Fractional"


def path_in(directory: Path) -> Path:
    """Where the list is, in MPS's folder."""
    return directory / "state" / "tenants.json"


def write(path: Path, tenants: Iterable[Tenant]) -> None:
    """Leave the list there, for root alone. Raises `OSError`."""
    listed = {
        tenant.uid: KnownPod(namespace=tenant.namespace, name=tenant.name, mode=tenant.mode if tenant.devices else "")
        for tenant in tenants
    }
    replace_file(path, msgspec.json.encode(listed), mode=0o600)


def read(path: Path) -> Mapping[str, KnownPod] | None:
    """The pods by UID; None if there is no list, or none that can be read."""
    try:
        return decode(path.read_bytes(), as_type=dict[str, KnownPod])
    except (OSError, UnreadableError):
        return None
