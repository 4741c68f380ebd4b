"""How a guest's record differs from the one that the guest should have. Pure.

A module of its own: pure, where `keeper` writes the changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import NO_TEMPLATE, GPUJobSpec, TemplateMetadata
from dovetail.decoding import convert

# What follows the guest as long as the record exists, what only while the guest is held, and what only another record
# can have.
_FOLLOWED: Final = ("priority", "preemptible")
_FOLLOWED_WHILE_HELD: Final = ("policy",)
_FIXED: Final = ("gpu", "workers", "mode", "workload")
_DEFAULTS: Final = GPUJobSpec()


def followed(spec: GPUJobSpec, *, wanted: Mapping[str, Any], is_held: bool) -> dict[str, Any]:
    """The fields to change in the record, as a merge patch.

    `wanted` is the spec of the manifest that the guest should have.
    """
    change = _differing(spec, wanted=wanted, fields=_FOLLOWED)
    if is_held:
        change |= _differing(spec, wanted=wanted, fields=_FOLLOWED_WHILE_HELD)
        if template := _change_of_template(spec, wanted=wanted):
            change["template"] = template
    return change


def fixed(spec: GPUJobSpec, *, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ and cannot change in a GPUJob."""
    change = _differing(spec, wanted=wanted, fields=_FIXED)
    strategy = wanted.get("memory", {}).get("strategy")
    if strategy != spec.memory.strategy:
        change["memory"] = strategy
    return change


def _differing(spec: GPUJobSpec, *, wanted: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    after = {field: wanted.get(field, getattr(_DEFAULTS, field)) for field in fields}
    return {field: value for field, value in after.items() if getattr(spec, field) != value}


def _change_of_template(spec: GPUJobSpec, *, wanted: Mapping[str, Any]) -> dict[str, Any]:
    if "template" not in wanted or bytes(spec.template.spec) == bytes(NO_TEMPLATE.spec):
        # The operator does not keep the template of a job that exceeds a limit.
        return {}
    after = wanted["template"]
    # As it is read: without what the record does not keep.
    metadata = values_of(convert(after.get("metadata") or {}, as_type=TemplateMetadata))
    if annotations := spec.template.metadata.annotations:
        # What the record got when it was made.
        metadata["annotations"] = annotations
    return _merge_patch(
        {"metadata": {}, **values_of(spec.template)}, after={"metadata": metadata, "spec": after["spec"]}
    )


def _merge_patch(before: Mapping[str, Any], *, after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch from one object to the other: a field that goes is null. A list is replaced as a whole."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            if inner := _merge_patch(known, after=value):
                patch[key] = inner
        elif key not in before or known != value:
            patch[key] = value
    return patch
