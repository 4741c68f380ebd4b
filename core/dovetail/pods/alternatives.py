"""The alternatives for a request: nodes that Dovetail manages, and a vendor's device plugin.

Pure.
"""

from dataclasses import replace
from typing import Final

from dovetail.engine.model.claims import Ask
from dovetail.gpu import models
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, MANAGED_VENDOR, Vendors
from dovetail.gpu.request import WHOLE_MILLI, GPURequest, RequestError

_NEEDS_MANAGED: Final = "needs a node that Dovetail manages, and those are NVIDIA's: a vendor's plugin gives whole GPUs"


def asks_by_kind(ask: Ask, *, vendors: Vendors = DEFAULT_VENDORS) -> tuple[Ask, ...]:
    """The alternatives for a job's request: managed nodes and a vendor's resource.

    The preferred one comes first. Raises `RequestError` for features of managed nodes with a vendor whose devices are
    never managed.
    """
    gpu = ask.gpu
    if gpu is None:
        return (ask,)
    managed = (ask,) if _may_be_managed(gpu) else ()
    feature = only_managed(ask)
    if feature:
        if not managed:
            whole = replace(gpu, share_milli=WHOLE_MILLI, memory_mib=None, memory_percent=None)
            anywhere = replace(whole, device_index=None, device_node=None)
            raise RequestError(str(gpu), problem=f"{feature} {_NEEDS_MANAGED}", example=str(anywhere))
        return managed
    by_vendor = tuple(replace(ask, resource=resource) for resource in vendors.resources_for(gpu))
    return (*managed, *by_vendor) if vendors.first == "Managed" else (*by_vendor, *managed)


def only_managed(ask: Ask) -> str:
    """The part of the request that only managed nodes can meet.

    Empty when a vendor's plugin can meet all of it.
    """
    gpu = ask.gpu
    if gpu is not None and gpu.mig:
        return ""
    if gpu is not None and (ask.mode != "Exclusive" or not gpu.whole):
        return f"a share (mode {ask.mode})" if gpu.whole else "a share"
    return "" if gpu is None or gpu.device_index is None else f"the device {gpu.device}"


def _may_be_managed(request: GPURequest) -> bool:
    if request.vendor is not None:
        return request.vendor == MANAGED_VENDOR
    return not request.models or any(models.vendor_of(name) in {None, MANAGED_VENDOR} for name in request.models)
