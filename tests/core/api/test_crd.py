import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.crd import (
    files,
    gpujob_crd,
    gpunode_crd,
    gpunodetenants_crd,
    gpuquota_crd,
    historyquery_crd,
)

ROOT = Path(__file__).parents[3]
CRDS = {
    "gpujobs": gpujob_crd(),
    "gpunodes": gpunode_crd(),
    "gpunodetenants": gpunodetenants_crd(),
    "gpuquotas": gpuquota_crd(),
    "historyqueries": historyquery_crd(),
}
FILES = files()
KINDS = {name: crd["spec"]["versions"][0] for name, crd in CRDS.items()}


def schemas(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, value in schema.get("properties", {}).items():
        yield from schemas(value, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from schemas(schema[key], f"{path}[]")


def root_schema(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = KINDS[kind]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_written_crds_are_those_of_the_types(name: str) -> None:
    assert (ROOT / "helm" / "dovetail" / "crd-files" / name).read_text(encoding="utf-8") == FILES[name], (
        "run `make crds`"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_description(kind: str) -> None:
    missing = [
        path
        for path, schema in schemas(root_schema(kind))
        if path not in {"", ".metadata"} and not path.endswith("[]") and "description" not in schema
    ]
    assert missing == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_is_structural(kind: str) -> None:
    for path, schema in schemas(root_schema(kind)):
        assert "type" in schema or "x-kubernetes-int-or-string" in schema, path
        # In Kubernetes' schemas exclusive bounds are flags of the others, as in OpenAPI 3.0.
        assert not {"$ref", "anyOf", "title", "exclusiveMinimum", "exclusiveMaximum"} & set(schema), path


@pytest.mark.parametrize("kind", KINDS)
def test_quantities_name_their_unit(kind: str) -> None:
    units = {"MiB": "MiB", "Seconds": "second", "Celsius": "Celsius", "Watts": "watts", "Milli": "thousandths"}
    for path, schema in schemas(root_schema(kind)):
        for suffix, unit in units.items():
            if path.endswith(suffix):
                assert unit in schema["description"], path


@pytest.mark.parametrize("kind", ["gpujobs", "gpuquotas", "historyqueries"])
def test_what_a_text_must_look_like_is_said_in_a_sentence(kind: str) -> None:
    """A `pattern` or a `format` would be answered with the expression, and hide what the rules would say."""
    spec = root_schema(kind)["properties"]["spec"]
    assert [path for path, schema in schemas(spec) if {"pattern", "format"} & set(schema)] == []


def test_the_names_of_models_are_checked_by_a_rule() -> None:
    """The API server knows no `propertyNames`."""
    spec = root_schema("gpuquotas")["properties"]["spec"]["properties"]
    for field in ("guaranteed", "limit"):
        (rule,) = spec[field]["properties"]["models"]["x-kubernetes-validations"]
        assert rule["rule"].startswith("self.all(key, key.matches(")
        assert rule["message"].startswith("models must be named as requests name models")
        assert "propertyNames" not in spec[field]["properties"]["models"]


def test_the_columns_of_kubectl_get_are_those_that_users_know() -> None:
    columns = gpujob_crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["State", "Reason", "Position", "GPUs", "Nodes", "Priority", "Started", "Elapsed", "Age"]


def test_a_write_of_a_status_asks_nothing_of_the_spec_which_has_many_fields() -> None:
    schema = root_schema("gpujobs")
    assert "x-kubernetes-validations" not in schema["properties"]["spec"]
    (rule,) = schema["x-kubernetes-validations"]
    first, _, rest = rule["rule"].partition(" || [self.spec].all")
    assert first.startswith("oldSelf.hasValue() && has(self.status) && (!has(oldSelf.value().status) || ")
    assert "spec" not in first
    # The API server finds equal statuses unequal, for their times: each change of a spec would be one of the status.
    assert re.findall(r"self[.]status[).]*(\w*) != ", first) == [
        "", "phase", "reason", "message", "workersActive", "workersReady"
    ]  # fmt: skip
    assert "size(dyn(self.status)) != size(" in first
    assert rule["fieldPath"] == ".spec"
    for sentence in ("exactly one of gpu (such as", "metadata.name is too long", "mode cannot be changed: delete"):
        assert f"'{sentence}" in rule["messageExpression"]
    assert "has(spec.retryPolicy) == has(old.retryPolicy)" in rest


@pytest.mark.parametrize("name", ["gpu", "mode", "minWorkers", "onNoGPU", "podFailurePolicy"])
def test_what_cannot_be_changed_is_compared_where_it_stands(name: str) -> None:
    field = root_schema("gpujobs")["properties"]["spec"]["properties"][name]
    message = f"{name} cannot be changed: delete the job and submit it again"
    assert {"rule": "self == oldSelf", "message": message} in field["x-kubernetes-validations"]


def test_only_gpujobs_have_a_scale_which_is_the_number_of_their_workers() -> None:
    scales = {name: crd["spec"]["versions"][0].get("subresources", {}).get("scale") for name, crd in CRDS.items()}
    scale = scales.pop("gpujobs")
    assert scale == {
        "specReplicasPath": ".spec.workers",
        "statusReplicasPath": ".status.workersActive",
        "labelSelectorPath": ".status.selector",
    }
    assert not any(scales.values())


@pytest.mark.parametrize("name", sorted(CRDS))
def test_one_version_is_served_and_stored_so_nothing_converts_an_object(name: str) -> None:
    spec = CRDS[name]["spec"]
    versions = [(each["name"], each["served"], each["storage"]) for each in spec["versions"]]
    assert (versions, "conversion" in spec) == ([("v1beta1", True, True)], False)


@pytest.mark.parametrize("name", sorted(FILES))
def test_kubectl_apply_can_keep_a_crd_in_an_annotation(name: str) -> None:
    """The last applied configuration: all annotations of an object have 256 KiB."""
    text = json.dumps(yaml.safe_load(FILES[name]), separators=(",", ":"))
    assert len(text.encode()) < 200 << 10
