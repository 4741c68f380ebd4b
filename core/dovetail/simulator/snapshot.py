"""A cluster at one moment, as a document: nodes with devices, promises, and jobs.

Values and text.

SnapshotError   a text that is not a snapshot: what is wrong and where

It holds what a simulation needs and no secrets: no commands, no environment, no images.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from dovetail.api.gpujob import Mode, Phase, Policy
from dovetail.api.meta import Described
from dovetail.decoding import UnreadableError, convert, decode
from dovetail.gpu.request import WHOLE_MILLI

VERSION: Final = 1
Count = Annotated[int, Meta(ge=0, le=1 << 40)]


class SnapshotError(ValueError):
    """A text that is not a snapshot."""


class SnapshotDevice(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A device of a node as its agent reports it.

    - `index`: index on the node
    - `uuid`: its UUID
    - `vendor`, `model`: its vendor and model
    - `memory_mib`: total memory
    - `reserved_mib`: memory that the driver keeps for itself
    - `foreign_mib`: memory in use beyond what was promised to tenants
    - `healthy`: whether the agent reports it as healthy
    - `cordoned`: whether it is cordoned, or foreign processes use it
    - `mig_profile`: the profile of a MIG instance, such as 1g.10gb; empty for a GPU
    """

    index: Count
    uuid: str
    vendor: str
    model: str
    memory_mib: Count
    reserved_mib: Count = 0
    foreign_mib: Count = 0
    healthy: bool = True
    cordoned: bool = False
    mig_profile: str = ""


class SnapshotNode(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A node.

    - `name`: its name
    - `managed`: whether Dovetail manages its devices
    - `obstacle`: why it takes no pods at all; empty otherwise
    - `cordoned`: whether it is cordoned
    - `cpu_milli`, `memory_mib`: the CPU and memory that it has
    - `other_cpu_milli`, `other_memory_mib`: what pods without devices take of these
    - `devices`: its devices
    """

    name: str
    managed: bool
    obstacle: str
    cordoned: bool
    cpu_milli: Count
    memory_mib: Count
    other_cpu_milli: Count = 0
    other_memory_mib: Count = 0
    devices: list[SnapshotDevice] = []


class SnapshotShare(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What a claim has of one device."""

    index: Count
    share_milli: Annotated[int, Meta(ge=1, le=WHOLE_MILLI)]
    memory_mib: Count


class SnapshotClaim(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What a bound pod holds.

    - `pod`, `namespace`: the pod
    - `job`: name of its GPUJob; empty for other pods
    - `node`: name of its node
    - `mode`: how it uses its devices
    - `cpu_milli`, `memory_mib`: what it takes of the host
    - `devices`: what it takes of each device
    - `unnamed`: number of whole devices that kubelet picked for a vendor's plugin and that the node has not reported
      yet
    - `instances`: the same of MIG instances, by profile
    """

    pod: str
    namespace: str
    job: str
    node: str
    mode: Mode
    cpu_milli: Count
    memory_mib: Count
    devices: list[SnapshotShare]
    unnamed: Count = 0
    instances: dict[str, Count] = {}


class SnapshotJob(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A GPUJob, or a waiting pod outside GPUJobs.

    - `kind`: which of the two
    - `name`, `namespace`: its name and namespace
    - `phase`: its phase
    - `request`: what each worker requests, as text; `cpu` for no device
    - `mode`, `policy`: how it uses devices, and how they are chosen
    - `workers`: number of workers
    - `priority`: its priority
    - `cpu_milli`, `memory_mib`: what each worker requests of the host
    - `submitted_at`, `started_at`, `ended_at`: RFC 3339 times; None if it has not started or ended
    - `limit_seconds`: its time limit; None without one
    """

    kind: Literal["GPUJob", "Pod"]
    name: str
    namespace: str
    phase: Phase
    request: str
    mode: Mode
    policy: Policy
    workers: Annotated[int, Meta(ge=1)]
    priority: int
    cpu_milli: Count
    memory_mib: Count
    submitted_at: str
    started_at: str | None = None
    ended_at: str | None = None
    limit_seconds: int | None = None


class Snapshot(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The whole document. `snapshot` is the version of this format."""

    snapshot: int = VERSION
    taken_at: str
    anonymous: bool
    turns_per_device: Annotated[int, Meta(ge=1)]
    nodes: list[SnapshotNode]
    claims: list[SnapshotClaim]
    jobs: list[SnapshotJob]


def to_json(snapshot: Snapshot) -> str:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(snapshot), indent=1).decode()


def to_yaml(snapshot: Snapshot) -> str:
    """YAML with the fields in their order."""
    import yaml  # noqa: PLC0415 - readers and writers of JSON need not load it

    return str(yaml.safe_dump(msgspec.to_builtins(snapshot), sort_keys=False, allow_unicode=True))


def parse(text: str, *, source: str) -> Snapshot:
    """The snapshot in a JSON or YAML text.

    Raises `SnapshotError`, in which `source` names the text.
    """
    document = _document(text, source=source)
    version = document.get("snapshot") if isinstance(document, dict) else None
    if version != VERSION:
        found = "there is none" if version is None else f'there is "{version}"'
        raise SnapshotError(f'{source}: expected a snapshot with "snapshot: {VERSION}", {found}')
    try:
        snapshot = convert(document, as_type=Snapshot)
    except UnreadableError as error:
        raise SnapshotError(f"{source}: {error}") from error
    known = {node.name for node in snapshot.nodes}
    stray = next((claim for claim in snapshot.claims if claim.node not in known), None)
    if stray is not None:
        raise SnapshotError(
            f'{source}: the claim of pod {stray.pod} is on node "{stray.node}", which is not among nodes'
        )
    return snapshot


def _document(text: str, *, source: str) -> Any:
    try:
        return decode(text, as_type=Any)
    except UnreadableError:
        pass
    from dovetail.formats.yaml_text import YAMLTextError, load_yaml  # noqa: PLC0415

    try:
        return load_yaml(text)
    except YAMLTextError as error:
        raise SnapshotError(f"{source}: neither JSON nor YAML: {error}") from error
