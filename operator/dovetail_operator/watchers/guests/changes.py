"""How a guest's record differs from the one that the guest should have. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail.api.gpujob import GPUJobSpec

# What follows the guest as long as the record exists, and what only another record can have.
_FOLLOWED: Final = ("priority", "preemptible")
_FIXED: Final = ("gpu", "workers", "mode")
_DEFAULTS: Final = GPUJobSpec()


def followed(spec: GPUJobSpec, *, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields to change in the record. `wanted` is the spec of the manifest that the guest should have."""
    return _differing(spec, wanted=wanted, fields=_FOLLOWED)


def fixed(spec: GPUJobSpec, *, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ and cannot change in a GPUJob."""
    return _differing(spec, wanted=wanted, fields=_FIXED)


def _differing(spec: GPUJobSpec, *, wanted: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    after = {field: wanted.get(field, getattr(_DEFAULTS, field)) for field in fields}
    return {field: value for field, value in after.items() if getattr(spec, field) != value}
