"""Growing pools as a configuration states them. Pure."""

from dovetail.api.builtin import Taint
from dovetail.config.growing import NodeShape
from dovetail.config.settings import Settings
from dovetail.formats.quantities import mebibytes, milli
from dovetail.gpu import models
from dovetail.queue.growing.pools import GrowingPool, GrowingRules


def growing_rules_of(settings: Settings) -> GrowingRules:
    """The rules and pools that a configuration states."""
    said = settings.growing
    return GrowingRules(
        pools=tuple(_pool(name, shape=shape, settings=settings) for name, shape in said.pools.items()),
        after_seconds=said.after,
        give_up_seconds=said.give_up,
        back_off_seconds=said.back_off,
    )


def _pool(name: str, *, shape: NodeShape, settings: Settings) -> GrowingPool:
    memory_mib = shape.gpu_memory_mib or models.memory_mib(shape.model, specs=settings.limits.memory_specs) or 0
    return GrowingPool(
        name=name,
        labels=shape.labels,
        taints=tuple(Taint(key=each.key, value=each.value, effect=each.effect) for each in shape.taints),
        max_nodes=shape.max_nodes,
        gpus=shape.gpus,
        model=shape.model,
        gpu_memory_mib=memory_mib,
        vendor=settings.vendors.vendor_of(shape.resource) or "nvidia",
        resource=shape.resource,
        cpu_milli=milli(shape.cpu, rounding="down"),
        memory_mib=mebibytes(shape.memory, rounding="down"),
        pods=shape.pods,
    )
