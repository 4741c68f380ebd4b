"""Builders of clusters and asks: a test names only what matters to it."""

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode, Policy, Workload
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.availability import Unavailable
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.gpu.memory_strategy import fraction_of
from dovetail.gpu.request import parse

MEMORY_MIB = {"V100": 32768, "T4": 16384, "A100": 81920, "H100": 81920, "H200": 144384}


def make_device(node: str, index: int, *, model: str = "V100", **facts: object) -> DeviceFacts:
    defaults: dict[str, object] = {"vendor": "nvidia", "memory_mib": MEMORY_MIB[model]}
    causes: list[Unavailable] = [] if facts.pop("healthy", True) else [Unavailable(cause="Unhealthy", detail="Xid79")]
    causes += [Unavailable(cause="Cordoned")] if facts.pop("cordoned", False) else []
    defaults["unavailable"] = tuple(causes)
    return DeviceFacts(index=index, uuid=f"{node}-{index}", model=model, **(defaults | facts))  # type: ignore[arg-type]


def node_causes(facts: dict[str, object]) -> tuple[Unavailable, ...]:
    """The causes for `obstacle` and `cordoned`, which are taken out of the facts."""
    obstacle, causes = str(facts.pop("obstacle", "")), []
    if obstacle == "node is not ready":
        causes.append(Unavailable(cause="NodeNotReady"))
    elif obstacle:
        causes.append(Unavailable(cause="ServedTwice", detail=obstacle))
    return (*causes, Unavailable(cause="NodeCordoned")) if facts.pop("cordoned", False) else tuple(causes)


def add_node(ledger: Ledger, name: str, *, gpus: int = 8, model: str = "V100", **facts: object) -> None:
    defaults: dict[str, object] = {"cpu_milli": 64000, "memory_mib": 262144, "unavailable": node_causes(facts)}
    ledger.set_node(NodeFacts(name=name, **(defaults | facts)))  # type: ignore[arg-type]
    ledger.set_devices(name, devices=[make_device(name, index, model=model) for index in range(gpus)])


def make_ledger(ledger: Ledger | None = None, **nodes: int) -> Ledger:
    """A ledger with V100 nodes: `make_ledger(a=8, b=4)`."""
    ledger = ledger or Ledger()
    for name, gpus in nodes.items():
        add_node(ledger, name, gpus=gpus)
    return ledger


def make_ask(
    text: str,
    *,
    mode: Mode | None = None,
    policy: Policy = "Balanced",
    cpu_milli: int = 0,
    guard: str | None = None,
    workload: Workload | None = None,
) -> Ask:
    request = parse(text)
    by_request: Mode = "Exclusive" if request.whole and request.memory_mib is None else "Fractional"
    fraction = None if guard is None else fraction_of(guard)
    return Ask(
        gpu=request,
        mode=mode or by_request,
        policy=policy,
        cpu_milli=cpu_milli,
        guard_fraction=fraction,
        workload=workload,
    )


def hold_devices(  # a fixture writes promises without asking whether they fit
    ledger: Ledger,
    node: str,
    *indexes: int,
    key: str = "",
    share_milli: int = 1000,
    memory_mib: int = 0,
    mode: Mode = "Exclusive",
    hold_until: float | None = None,
    guard: str | None = None,
    workload: Workload | None = None,
) -> None:
    devices = tuple(
        AllocatedDevice(index=index, uuid=f"{node}-{index}", share_milli=share_milli, memory_mib=memory_mib)
        for index in indexes
    )
    key = key or f"{node}{indexes}{share_milli}{mode}"
    claim = Claim(
        key=key,
        node=node,
        mode=mode,
        devices=devices,
        guard_fraction=None if guard is None else fraction_of(guard),
        workload=workload,
    )
    ledger.commit(claim, hold_until=hold_until)
