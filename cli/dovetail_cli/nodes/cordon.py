"""Cordon and uncordon devices: `GPUNode.spec.cordoned`, and `spec.mended` after a repair."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES
from dovetail.kube.errors import Conflict
from dovetail.kube.retry import retry_on_conflict
from dovetail.query.nodes.device_names import Named, named
from dovetail_cli.cluster import several
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError
from dovetail_cli.ui.times import utc_now

COLUMNS: Final = ("node", "index", "uuid", "cordoned", "changed")
_TRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Whether devices shall be out of use; `mended`: their faults of before count no more."""

    cordoned: bool
    mended: bool = False


async def cordon(cluster: Cluster, *, words: Sequence[str], wish: Wish) -> list[dict[str, Any]]:
    """Cordon or uncordon the named devices. Returns each one's old and new state.

    Writes nothing if a device does not exist. Raises as `named` does, and `CommandError` about nodes that are not
    changed, which names the devices of the others.
    """
    gpunodes = (await cluster.client.list(GPUNODES, as_type=GPUNode)).items
    devices = named(words, gpunodes=gpunodes)
    by_node: dict[str, set[str]] = defaultdict(set)
    for device in devices:
        by_node[device.node].add(device.uuid)
    before = {each.metadata.name: each for each in gpunodes}
    changed, refused = await several.each(
        {
            f"GPUNode {node}": _write(cluster, gpunode=before[node], uuids=uuids, wish=wish)
            for node, uuids in by_node.items()
        }
    )
    news = {uuid for uuids in changed.values() for uuid in uuids}
    rows = [_row(device, wish=wish, changed=device.uuid in news) for device in devices]
    if refused is not None:
        done = [sentence(row, mended=wish.mended) for row in rows if f"GPUNode {row['node']}" in changed]
        raise type(refused)("; ".join([str(refused), *done]))
    return rows


def sentence(row: dict[str, Any], *, mended: bool) -> str:
    """What became of one device, for people."""
    called = f"{row['node']}:{row['index']}" if row["index"] is not None else row["node"]
    state = "cordoned" if row["cordoned"] else "uncordoned"
    done = state if row["changed"] else ("cordoned already" if row["cordoned"] else "not cordoned")
    return f"{called} ({row['uuid']}) {done}" + ("; its faults of before count no more" if mended else "")


async def _write(cluster: Cluster, *, gpunode: GPUNode, uuids: Collection[str], wish: Wish) -> set[str]:
    """One write for a node, from what it has at that moment; the UUIDs for which it was news."""
    name = gpunode.metadata.name

    async def write(attempt: int) -> set[str]:
        found = await cluster.client.get(GPUNODES, name=name, as_type=GPUNode) if attempt else gpunode
        news = set(uuids) - set(found.spec.cordoned) if wish.cordoned else set(uuids) & set(found.spec.cordoned)
        if patch := _patch(found, news=news, uuids=uuids, wish=wish):
            # The patch replaces the whole list, so the resourceVersion guards against a concurrent change.
            body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": patch}
            await cluster.client.patch(GPUNODES, name=name, patch=body, as_type=GPUNode)
        return news

    try:
        return await retry_on_conflict(write, attempts=_TRIES)
    except Conflict as error:
        raise CommandError(f"it was changed by others {_TRIES} times in between: try again") from error


def _patch(gpunode: GPUNode, *, news: Collection[str], uuids: Collection[str], wish: Wish) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    if news:
        kept = [uuid for uuid in gpunode.spec.cordoned if uuid not in news]
        patch["cordoned"] = [*kept, *sorted(news)] if wish.cordoned else kept
    if wish.mended:
        patch["mended"] = dict.fromkeys(sorted(uuids), f"{utc_now():%Y-%m-%dT%H:%M:%SZ}")
    return patch


def _row(device: Named, *, wish: Wish, changed: bool) -> dict[str, Any]:
    return {
        "node": device.node,
        "index": device.index,
        "uuid": device.uuid,
        "cordoned": wish.cordoned,
        "changed": changed,
    }
