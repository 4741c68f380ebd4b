"""The ResourceQuota by which a tenant's limit on a vendor's GPUs also binds GPUs of Dovetail. Pure.

A ResourceQuota on `requests.nvidia.com/gpu` counts what containers request, and containers with GPUs of Dovetail
request other resources. Its companion limits these: 4 GPUs of the vendor are 4,000 thousandths of Dovetail's, less
what the tenant's pods hold of the vendor's.
"""

from typing import Any, Final

from dovetail import names
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import RESOURCEQUOTAS
from dovetail.formats.quantities import Quantity, QuantityError, whole
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.jobs.guests.record import name_with

_REQUESTS: Final = "requests."
_PREFIX: Final = "dovetail"
# A limit beyond every cluster; larger amounts would not fit a 64-bit sum.
_MOST: Final = 1 << 40
Manifest = dict[str, Any]


class QuotaSpec(Described, frozen=True, kw_only=True):
    """What a ResourceQuota limits, and the pods that it counts."""

    hard: dict[str, Quantity] = {}
    scopes: list[str] = []
    scope_selector: dict[str, Any] | None = None


class QuotaStatus(Described, frozen=True, kw_only=True):
    """What a ResourceQuota has counted."""

    used: dict[str, Quantity] = {}


class ResourceQuota(Described, frozen=True, kw_only=True):
    """A ResourceQuota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


def is_counted(quota: ResourceQuota) -> bool:
    """Whether the operator made this ResourceQuota, as far as its label says."""
    return quota.metadata.labels.get(names.LABEL_COUNTED_QUOTA) == "true"


def companion_name(name: str) -> str:
    """The name of the companion of the tenant's ResourceQuota with this name."""
    return name_with(_PREFIX, name=name)


def counted_quota(quota: ResourceQuota, *, resource: str) -> Manifest | None:
    """The companion of `quota`, as JSON; None if `quota` does not limit the vendor's `resource`.

    Its hard limits are thousandths of GPUs, and GPUs in turns.
    """
    limited = quota.spec.hard.get(_REQUESTS + resource)
    if limited is None or is_counted(quota):
        return None
    try:
        left = min(_MOST, max(0, whole(limited) - whole(quota.status.used.get(_REQUESTS + resource, 0))))
    except QuantityError:
        return None
    meta = quota.metadata
    spec: Manifest = {
        "hard": {
            f"{_REQUESTS}{names.GPU_MILLI}": str(left * WHOLE_MILLI),
            f"{_REQUESTS}{names.GPU_TURN}": str(left),
        }
    }
    if quota.spec.scopes:
        spec["scopes"] = quota.spec.scopes
    if quota.spec.scope_selector is not None:
        spec["scopeSelector"] = quota.spec.scope_selector
    owner = {"apiVersion": "v1", "kind": RESOURCEQUOTAS.kind, "name": meta.name, "uid": meta.uid}
    return {
        "apiVersion": "v1",
        "kind": RESOURCEQUOTAS.kind,
        "metadata": {
            "name": companion_name(meta.name),
            "namespace": meta.namespace,
            "labels": {names.LABEL_COUNTED_QUOTA: "true"},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def says(found: ResourceQuota, *, wanted: Manifest) -> bool:
    """Whether a ResourceQuota limits what is wanted, for the pods that are wanted."""
    try:
        hard = {name: whole(amount) for name, amount in found.spec.hard.items()}
    except QuantityError:
        return False
    wants = {name: whole(amount) for name, amount in wanted["spec"]["hard"].items()}
    return hard == wants and has_scopes_of(found, wanted=wanted)


def has_scopes_of(found: ResourceQuota, *, wanted: Manifest) -> bool:
    """Whether a ResourceQuota counts the pods that are wanted."""
    spec = wanted["spec"]
    return (found.spec.scopes, found.spec.scope_selector) == (spec.get("scopes", []), spec.get("scopeSelector"))
