"""Conversion of objects between `v1alpha1` and `v1beta1`. Pure: plain values in, new ones out.

Without loss in both directions: v1alpha1 has two names for the limit of GPUs, and an annotation of the converted object
remembers which of them was written. It is the conversion's own: one that people write is dropped. All fields that have
the same name in both versions pass through unread.

ConversionError   the object cannot be converted; says which field, its value and what is allowed
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dovetail.api import gpuquota
from dovetail.names import API_VERSION, GROUP, LIMIT_FORM, V1BETA1

V1BETA1_API_VERSION: Final = f"{GROUP}/{V1BETA1}"
API_VERSIONS: Final = (API_VERSION, V1BETA1_API_VERSION)
Object = dict[str, Any]

_POLICIES: Final = {True: "PreemptLowerPriority", False: "Never"}
_MAY_PREEMPT: Final = {policy: may for may, policy in _POLICIES.items()}
_JOB_COUNTS: Final[tuple[str, ...]] = ("runningJobs", "queuedJobs")
_TIMES: Final = {"start": "startTime", "end": "endTime"}
# The values of the annotation: what the v1alpha1 object had beyond what follows from the v1beta1 object.
_GPUS: Final = "gpus"
_EMPTY_LIMIT: Final = "limit"
_LONGEST_VALUE: Final = 100


class ConversionError(ValueError):
    """The object cannot be converted."""


def convert_object(value: Object, *, to: str) -> Object:
    """The object in another version, `to`, such as `dovetail.dev/v1beta1`. Raises `ConversionError`."""
    found, kind = value.get("apiVersion"), value.get("kind")
    converters = _CONVERTERS.get(kind) if isinstance(kind, str) else None
    if converters is None:
        raise ConversionError(f"kind {_shown(kind)}: expected one of {', '.join(_CONVERTERS)}")
    for name, version in (("apiVersion", found), ("desired apiVersion", to)):
        if version not in API_VERSIONS:
            raise ConversionError(f"{name} {_shown(version)}: expected one of {', '.join(API_VERSIONS)}")
    if found == to:
        return value
    return {**converters[to](value), "apiVersion": to}


def _quota_to_v1beta1(quota: Object) -> Object:
    spec = dict(_object(quota.get("spec", {}), name="spec"))
    limit = dict(_object(spec.pop("limit"), name="spec.limit")) if "limit" in spec else None
    counts = {name: spec.pop(name) for name in _JOB_COUNTS if name in spec}
    form = _EMPTY_LIMIT if limit == {} and counts else ""
    if "gpus" in spec:
        if limit is not None:
            raise ConversionError("spec.gpus is the older name of spec.limit.gpus: expected one of them, not both")
        form, limit = _GPUS, {"gpus": spec.pop("gpus")}
    if limit is not None or counts:
        spec["limit"] = _joined(limit or {}, fields=counts, name="spec.limit")
    if "mayPreempt" in spec:
        spec = _joined(
            spec, fields={"preemptionPolicy": _mapped(spec, field="mayPreempt", values=_POLICIES)}, name="spec"
        )
    if "reservations" in spec:
        windows = _windows(spec.pop("reservations"), name="spec.reservations", times=_TIMES)
        spec = _joined(spec, fields={"advanceReservations": windows}, name="spec")
    return _with_spec(quota, spec=spec, metadata=_remember(quota.get("metadata", {}), form=form))


def _quota_to_v1alpha1(quota: Object) -> Object:
    spec = dict(_object(quota.get("spec", {}), name="spec"))
    metadata, form = _recall(quota.get("metadata", {}))
    if "limit" in spec:
        limit = dict(_object(spec.pop("limit"), name="spec.limit"))
        counts = {name: limit.pop(name) for name in _JOB_COUNTS if name in limit}
        if form == _GPUS and limit.keys() == {"gpus"}:
            spec = _joined(spec, fields={"gpus": limit["gpus"]}, name="spec")
        elif limit or not counts or form == _EMPTY_LIMIT:
            spec["limit"] = limit
        spec = _joined(spec, fields=counts, name="spec")
    if "preemptionPolicy" in spec:
        spec = _joined(
            spec, fields={"mayPreempt": _mapped(spec, field="preemptionPolicy", values=_MAY_PREEMPT)}, name="spec"
        )
    if "advanceReservations" in spec:
        name = "spec.advanceReservations"
        windows = _windows(spec.pop("advanceReservations"), name=name, times={b: a for a, b in _TIMES.items()})
        spec = _joined(spec, fields={"reservations": windows}, name="spec")
    return _with_spec(quota, spec=spec, metadata=metadata)


_CONVERTERS: Final[Mapping[str, Mapping[str, Callable[[Object], Object]]]] = {
    gpuquota.KIND: {V1BETA1_API_VERSION: _quota_to_v1beta1, API_VERSION: _quota_to_v1alpha1},
}


def _with_spec(quota: Object, *, spec: Object, metadata: Any) -> Object:
    """The quota with these parts; a part that it did not have stays absent."""
    parts = {"metadata": metadata, "spec": spec}
    return {**quota, **{name: part for name, part in parts.items() if name in quota}}


def _remember(metadata: Any, *, form: str) -> Any:
    """The metadata with the annotation. One that v1alpha1 already has would change the limit on the way back."""
    metadata, _ = _recall(metadata)
    if not form:
        return metadata
    known = _object(metadata, name="metadata")
    annotations = _object(known.get("annotations") or {}, name="metadata.annotations")
    return {**known, "annotations": {**annotations, LIMIT_FORM: form}}


def _recall(metadata: Any) -> tuple[Any, str]:
    """The metadata without the annotation, and its value; empty without one."""
    known = _object(metadata, name="metadata")
    annotations = dict(_object(known.get("annotations") or {}, name="metadata.annotations"))
    if LIMIT_FORM not in annotations:
        return metadata, ""
    form = annotations.pop(LIMIT_FORM)
    rest = {name: value for name, value in known.items() if name != "annotations"}
    return (rest | {"annotations": annotations} if annotations else rest), form


def _windows(value: Any, *, name: str, times: Mapping[str, str]) -> list[Object]:
    if not isinstance(value, list):
        raise ConversionError(f"{name} {_shown(value)}: expected a list")
    return [_renamed(each, name=f"{name}[{index}]", fields=times) for index, each in enumerate(value)]


def _renamed(value: Any, *, name: str, fields: Mapping[str, str]) -> Object:
    known = _object(value, name=name)
    kept = {field: each for field, each in known.items() if field not in fields}
    return _joined(kept, fields={fields[field]: known[field] for field in fields if field in known}, name=name)


def _joined(value: Object, *, fields: Object, name: str) -> Object:
    """The value with these fields. Raises `ConversionError` if it has one of them already."""
    for field in fields:
        if field in value:
            raise ConversionError(f"{name}.{field} belongs to the other version: expected no such field here")
    return value | fields


def _mapped(spec: Object, *, field: str, values: Mapping[Any, Any]) -> Any:
    """Remove a field from the spec, and return what its value means in the other version."""
    value = spec.pop(field)
    # A type check first: 1 is equal to True, and a list cannot be looked up.
    if isinstance(value, bool | str) and value in values:
        return values[value]
    allowed = " or ".join(_shown(each) for each in values)
    raise ConversionError(f"spec.{field} {_shown(value)}: expected {allowed}")


def _object(value: Any, *, name: str) -> Object:
    if not isinstance(value, dict):
        raise ConversionError(f"{name} {_shown(value)}: expected an object")
    return value


def _shown(value: Any) -> str:
    """A value as JSON writes it, truncated; of a list or an object, only what it is."""
    if isinstance(value, list | dict):
        return "(a list)" if isinstance(value, list) else "(an object)"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f'"{value}"'[:_LONGEST_VALUE] if isinstance(value, str) else str(value)[:_LONGEST_VALUE]
