"""Why a node refuses a pod: every reason, not the first one alone. Pure.

The checks are those of kube-scheduler's plugins NodeUnschedulable, TaintToleration, NodeAffinity and NodeResourcesFit,
and for parts of devices those of HAMi and KAI.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from dovetail import names
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.pods.node_affinity import exclusion
from dovetail.query.explain.observe import hami
from dovetail.query.explain.observe.books import NodeBook, Room
from dovetail.query.explain.observe.demands import NVIDIA, Demand, Part

# `Closed` may pass by itself or by a person, `Excluded` by the pod's spec, `TooLarge` by no end of another pod.
Kind = Literal["Closed", "Excluded", "TooLarge", "Devices", "Host"]
_MIB_OF_GIB: Final = 1024
# In one sentence.
_HOLDERS: Final = 3
# Sums of fractions.
_HAIR: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A reason why a node refuses a pod.

    kind    what would have to change
    reason  one word, such as Taint or CPU
    text    in words that all nodes of one cause share, after "N nodes:"
    change  what alone would remove it, after "It would start with"; empty for nothing
    lacks   how much is missing there; 0 where that is no amount
    """

    kind: Kind
    reason: str
    text: str
    change: str
    lacks: int = 0


def offers(book: NodeBook, *, demand: Demand) -> bool:
    """Whether the node has devices of the kind that is asked for, free or not."""
    if demand.system == "HAMi":
        return bool(book.hamis)
    if demand.system == "KAI":
        return bool(book.amounts.get(NVIDIA, Room(total=0)).total) and not book.hamis
    return all(book.amounts.get(name, Room(total=0)).total > 0 for name in demand.amounts)


def refusals(book: NodeBook, *, demand: Demand, constraints: Mapping[str, Any]) -> list[Refusal]:
    """Every reason why a node that offers such devices refuses a pod; none where it has room."""
    return [
        *_closed(book),
        *_excluded(book, constraints=constraints),
        *_devices(book, demand=demand),
        *_host(book, demand=demand),
    ]


def _closed(book: NodeBook) -> Iterator[Refusal]:
    if book.closed:
        fix = f"kubectl uncordon {book.name}" if book.node.spec.unschedulable else f"{book.name} ready again"
        yield Refusal(kind="Closed", reason="NodeClosed", text=book.closed.removeprefix("is "), change=fix)


def _excluded(book: NodeBook, *, constraints: Mapping[str, Any]) -> Iterator[Refusal]:
    found = exclusion(book.node, pod_spec=constraints)
    if found is None:
        return
    text, change = {
        "NodeSelector": (f"no label {found.what}", f"a nodeSelector without {found.what}"),
        "Taint": (f"taint {found.what}", f"a toleration of {found.what}"),
        "NodeAffinity": ("node affinity not met", "another node affinity"),
    }[found.kind]
    yield Refusal(kind="Excluded", reason=found.kind, text=text, change=f"{change}: {book.name} has room")


def _devices(book: NodeBook, *, demand: Demand) -> Iterator[Refusal]:
    if book.hamis and (demand.system == "HAMi" or NVIDIA in demand.amounts):
        yield from _of_hami(book, demand=demand)
        return
    if demand.system == "KAI":
        yield from _of_kai(book, part=demand.parts[0])
        return
    for resource, asked in demand.amounts.items():
        room = book.amounts[resource]
        if asked > room.total:
            text = f"fewer than {amount(resource, value=asked)} in all"
            yield Refusal(kind="TooLarge", reason="TooLarge", text=text, change="")
        elif asked > room.free:
            text = f"fewer than {amount(resource, value=asked)} free"
            yield Refusal(
                kind="Devices", reason="Devices", text=text, lacks=asked - room.free,
                change=f"{amount(resource, value=asked - room.free)} more on {book.name}{_held_by(book)}",
            )  # fmt: skip


def amount(resource: str, *, value: int) -> str:
    """An amount of a resource in words: `2 nvidia.com/gpu`, `0.5 GPUs of Dovetail`."""
    if resource == names.GPU_MILLI:
        return f"{value / WHOLE_MILLI:g} GPUs of Dovetail"
    return f"{value} {resource}"


def _of_hami(book: NodeBook, *, demand: Demand) -> Iterator[Refusal]:
    parts = demand.parts or (Part(count=demand.amounts[NVIDIA]),)
    if hami.has_room(book.hamis, parts=parts, annotations=demand.annotations):
        return
    if not hami.could_have(book.hamis, parts=parts, annotations=demand.annotations):
        yield Refusal(kind="TooLarge", reason="TooLarge", text="no devices of that size or model", change="")
        return
    yield Refusal(
        kind="Devices", reason="Devices", text="no devices with that much left, as HAMi counts",
        change=f"room on {book.name}{_held_by(book)}",
    )  # fmt: skip


def _of_kai(book: NodeBook, *, part: Part) -> Iterator[Refusal]:
    if part.memory_mib is not None and book.device_mib and part.memory_mib > book.device_mib:
        text = f"devices of less than {part.memory_mib} MiB"
        yield Refusal(kind="TooLarge", reason="TooLarge", text=text, change="")
        return
    if part.count > book.amounts[NVIDIA].total:
        yield Refusal(kind="TooLarge", reason="TooLarge", text=f"fewer than {part.count} devices", change="")
        return
    share = part.share_of(book.device_mib)
    shared = sum(used + share <= 1 + _HAIR for used in book.shared.values())
    if shared + book.whole_free(NVIDIA) < part.count:
        text = f"fewer than {part.count} devices with {share:.2g} of each left"
        change = f"room on {book.name}{_held_by(book)}"
        yield Refusal(kind="Devices", reason="Devices", text=text, change=change)


def _host(book: NodeBook, *, demand: Demand) -> Iterator[Refusal]:
    if demand.cpu_milli > book.cpu.free:
        cpus = f"{demand.cpu_milli / WHOLE_MILLI:g} CPUs"
        yield _of_host(book, reason="CPU", asked=cpus, room=book.cpu, need=demand.cpu_milli)
    if demand.memory_mib > book.memory.free:
        gib = f"{demand.memory_mib / _MIB_OF_GIB:.3g} GiB of memory"
        yield _of_host(book, reason="Memory", asked=gib, room=book.memory, need=demand.memory_mib)
    if book.pods.free < 1:
        yield _of_host(book, reason="Pods", asked="1 pod", room=book.pods, need=1)


def _of_host(book: NodeBook, *, reason: str, asked: str, room: Room, need: int) -> Refusal:
    if need > room.total:
        return Refusal(kind="TooLarge", reason=reason, text=f"less than {asked} in all", change="")
    change = f"{asked} free on {book.name}, which has the devices"
    return Refusal(kind="Host", reason=reason, text=f"less than {asked} free", change=change, lacks=need - room.free)


def _held_by(book: NodeBook) -> str:
    """Who holds the node's devices, the largest first."""
    largest = sorted(book.held, key=lambda each: -max(each.devices.values()))[:_HOLDERS]
    named = ", ".join(f"{each.pod.metadata.namespace}/{each.pod.metadata.name}" for each in largest)
    if not named:
        return ""
    more = len(book.held) - len(largest)
    return f", held by {named}" + (f" and {more} more" if more else "")
