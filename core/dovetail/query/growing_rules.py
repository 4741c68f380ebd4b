"""Growing pools as a configuration states them, with Karpenter's NodePools. Pure."""

from collections.abc import Iterable

from dovetail.api.builtin import Taint
from dovetail.api.karpenter import NodePool
from dovetail.config.growing import NodeShape
from dovetail.config.settings import Settings
from dovetail.formats.quantities import mebibytes, milli
from dovetail.gpu import models
from dovetail.queue.growing.karpenter import with_node_pools
from dovetail.queue.growing.pools import GrowingPool, GrowingRules


def growing_rules_of(settings: Settings, *, node_pools: Iterable[NodePool] = ()) -> GrowingRules:
    """The rules and pools that a configuration states, with the NodePools that were found."""
    said = settings.growing
    declared = GrowingRules(
        pools=tuple(_pool(name, shape=shape, settings=settings) for name, shape in said.pools.items()),
        after_seconds=said.after,
        give_up_seconds=said.give_up,
        back_off_seconds=said.back_off,
    )
    return with_node_pools(declared, found=node_pools)


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
        provisioning_class=shape.class_name if shape.provisioning == "ProvisioningRequest" else "",
    )
