"""The CRDs out of the API types: structural schemas with descriptions, defaults and CEL rules. Pure.

`python -m dovetail.api.crd FOLDER` writes one file a kind. A test compares them with
those of the chart.
"""

import copy
import sys
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dovetail.api import gpunodetenants, gpuquota, historyquery, text_formats
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpujob.validation import combined, execution, immutability, topology
from dovetail.api.gpujob.validation import schema as rules
from dovetail.api.gpunode import GPUNode
from dovetail.gpu.request import MAX_TEXT
from dovetail.names import GROUP, VERSION

Schema = dict[str, Any]

_NODE_COLUMNS: Final = [
    ("Provider", "string", ".status.provider", "Where the figures come from."),
    ("Model", "string", ".status.devices[0].model", "Model of the first device."),
    ("GPUs", "integer", ".status.gpus", "Number of devices."),
    ("Free", "string", ".status.free", "How many of them no pod on the node was promised; half a GPU is 0.5."),
    (
        "Ready",
        "string",
        ".status.conditions[?(@.type=='Ready')].status",
        "Whether the agent reads the devices.",
    ),
    ("MPS", "boolean", ".status.enforcement.mps", "Whether limits of compute and memory are live and were probed."),
    ("Turns", "boolean", ".status.enforcement.turns", "Whether TimeShared tenants take turns."),
    ("Observed", "date", ".status.observedAt", "Time since the agent last reported."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was made."),
]
# For `kubectl scale` and autoscalers: the number of workers that an elastic job requests, and that it has.
_SCALE: Final[Schema] = {
    "specReplicasPath": ".spec.workers",
    "statusReplicasPath": ".status.workersActive",
    "labelSelectorPath": ".status.selector",
}


def gpujob_crd() -> Schema:
    """The CustomResourceDefinition of GPUJob."""
    schema = structural_schema(GPUJob)
    schema["x-kubernetes-validations"] = [*rules.WHOLE, *execution.WHOLE]
    spec = schema["properties"]["spec"]
    spec["x-kubernetes-validations"] = rules.SPEC
    execution.add_to(spec)
    spec["properties"]["gpu"]["x-kubernetes-validations"] = [rules.GPU]
    spec["properties"]["gpu"]["maxLength"] = MAX_TEXT
    resources = spec["properties"]["resources"]
    resources["x-kubernetes-validations"] = rules.RESOURCES
    resources["properties"]["share"]["x-kubernetes-validations"] = [rules.SHARE]
    _say_allowed(spec["properties"], names=("mode", "policy", "workload"))
    _say_allowed(spec["properties"], names=("dependencyPolicy", "onDependencyFailure", "onNoGPU"))
    _say_allowed(spec["properties"]["distributed"]["properties"], names=("framework",))
    _say_allowed(spec["properties"]["sweep"]["properties"], names=("combine",))
    _say_allowed(
        spec["properties"]["podFailurePolicy"]["properties"]["rules"]["items"]["properties"], names=("action",)
    )
    _say_allowed(spec["properties"]["dependencies"]["items"]["properties"], names=("condition",))
    _say_shape(spec["properties"]["rightSize"], message=rules.RIGHT_SIZE)
    memory = spec["properties"]["memory"]
    memory["x-kubernetes-validations"] = rules.MEMORY
    _say_shape(memory["properties"]["strategy"], message=rules.STRATEGY)
    _say_allowed(resources["properties"], names=("vendor",))
    for field, message in rules.SHAPES.items():
        _say_shape(resources["properties"][field], message=message)
    _say_shape(
        spec["properties"]["notify"]["properties"]["emails"], message="an address must be such as ada@example.com"
    )
    topology.add_to(spec)
    levels = spec["properties"]["topology"]["properties"]
    for level in (levels["required"], levels["preferred"], levels["subGroups"]["properties"]["required"]):
        _say_shape(level, message=topology.LEVEL)
    text_formats.add_rules(spec)
    immutability.add_to(spec)
    immutability.add_to_whole(schema)
    whole, ours = schema["x-kubernetes-validations"], spec.pop("x-kubernetes-validations")
    schema["x-kubernetes-validations"] = [combined.combined(whole=whole, spec=ours)]
    columns = [_column(*column) for column in rules.COLUMNS]
    columns += [_column(*column) | {"priority": 1} for column in rules.WIDE_COLUMNS]
    crd = _crd("GPUJob", plural="gpujobs", short=["gj"], scope="Namespaced", columns=columns, schema=schema)
    for version in crd["spec"]["versions"]:
        version["subresources"]["scale"] = _SCALE
    return crd


def _say_allowed(properties: Schema, *, names: tuple[str, ...]) -> None:
    """Turn `enum` into a CEL rule, so that the API server answers a wrong word with one sentence."""
    for name in names:
        allowed = properties[name].pop("enum")
        properties[name]["maxLength"] = 32
        properties[name]["x-kubernetes-validations"] = [
            {"rule": f"self in {allowed}", "message": f"{name} must be one of {', '.join(allowed)}"}
        ]


def _say_shape(schema: Schema, *, message: str) -> None:
    """Turn `pattern` into a CEL rule, so that the API server answers with a sentence instead of an expression."""
    text = schema.get("items", schema)
    text.setdefault("maxLength", 32)
    text["x-kubernetes-validations"] = [
        {"rule": text_formats.matches("self", pattern=text.pop("pattern")), "message": message}
    ]


def gpunode_crd() -> Schema:
    """The CustomResourceDefinition of GPUNode."""
    columns = [_column(*column) for column in _NODE_COLUMNS]
    schema = structural_schema(GPUNode)
    schema["required"] = []
    return _crd("GPUNode", plural="gpunodes", short=["gn"], scope="Cluster", columns=columns, schema=schema)


def gpuquota_crd() -> Schema:
    """The CustomResourceDefinition of GPUQuota."""
    schema = structural_schema(gpuquota.GPUQuota)
    schema["required"] = ["spec"]
    schema["x-kubernetes-validations"] = gpuquota.WHOLE_RULES
    spec = schema["properties"]["spec"]
    spec["x-kubernetes-validations"] = gpuquota.SPEC_RULES
    reservation = spec["properties"]["advanceReservations"]["items"]
    reservation["x-kubernetes-validations"] = gpuquota.ADVANCE_RESERVATION_RULES
    spec["properties"]["reserve"]["x-kubernetes-validations"] = gpuquota.RESERVE_RULES
    _say_allowed(spec["properties"], names=("per", "preemptionPolicy"))
    text_formats.add_rules(spec)
    columns = [_column(*column) for column in gpuquota.COLUMNS]
    return _crd("GPUQuota", plural="gpuquotas", short=["gquota"], scope="Cluster", columns=columns, schema=schema)


def gpunodetenants_crd() -> Schema:
    """The CustomResourceDefinition of GPUNodeTenants."""
    schema = structural_schema(gpunodetenants.GPUNodeTenants)
    schema["required"] = []
    # Most of a tenant is as usual: what is left out stays so, for it is written and sent with every change of a node.
    _leave_out_defaults(schema)
    columns = [_column(*column) for column in gpunodetenants.COLUMNS]
    crd = _crd(
        "GPUNodeTenants", plural="gpunodetenants", short=["gnt"], scope="Cluster", columns=columns, schema=schema
    )
    for version in crd["spec"]["versions"]:
        del version["subresources"]
    return crd


def _leave_out_defaults(schema: Schema) -> None:
    schema.pop("default", None)
    for part in schema.get("properties", {}).values():
        _leave_out_defaults(part)
    if "items" in schema:
        _leave_out_defaults(schema["items"])


def historyquery_crd() -> Schema:
    """The CustomResourceDefinition of HistoryQuery."""
    schema = structural_schema(historyquery.HistoryQuery)
    schema["required"] = []
    _say_allowed(schema["properties"]["spec"]["properties"], names=("groupBy",))
    text_formats.add_rules(schema["properties"]["spec"])
    columns = [_column(*column) for column in historyquery.COLUMNS]
    return _crd(
        "HistoryQuery", plural="historyqueries", short=["hq"], scope="Namespaced", columns=columns, schema=schema
    )


def structural_schema(kind: type[msgspec.Struct]) -> Schema:
    """The OpenAPI v3 schema of a kind as the API server wants it: no references, no unions, a type everywhere."""
    (root,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    schema = _resolve(root, components=components)
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
        "metadata": {"type": "object"},
        **{name: value for name, value in schema["properties"].items() if name in {"spec", "status"}},
    }
    schema["required"] = [name for name in schema["required"] if name == "spec"]
    return schema


def _resolve(schema: Schema, *, components: dict[str, Schema]) -> Schema:
    merged = dict(schema)
    if "$ref" in merged:
        merged = components[merged.pop("$ref")] | merged
    if "anyOf" in merged:
        merged = _union(merged.pop("anyOf"), components=components) | merged
    if "enum" in merged:
        merged["type"] = "string"
    merged.pop("title", None)
    # An empty default says nothing, and the API server would write it into every object.
    if merged.get("default", "") in (None, "", []) or isinstance(merged.get("default"), dict):
        merged.pop("default", None)
    if "required" in merged and not merged["required"]:
        del merged["required"]
    if "properties" in merged:
        merged["properties"] = {
            name: _resolve(value, components=components) for name, value in merged["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(merged.get(key), dict):
            merged[key] = _resolve(merged[key], components=components)
    if merged.get("properties", {}).keys() >= {"lastTransitionTime"}:
        merged["required"] = ["type", "status", "reason", "message", "lastTransitionTime"]
    if merged.get("type") == "array" and "lastTransitionTime" in merged["items"].get("properties", {}):
        merged |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return copy.deepcopy(merged)


def _union(options: list[Schema], *, components: dict[str, Schema]) -> Schema:
    kept = [option for option in options if option.get("type") != "null"]
    if {option.get("type") for option in kept} == {"integer", "string"}:
        return {"x-kubernetes-int-or-string": True}
    (only,) = kept
    return _resolve(only, components=components)


def _column(name: str, type_: str, path: str, description: str) -> Schema:
    return {"name": name, "type": type_, "jsonPath": path, "description": description}


def _crd(kind: str, *, plural: str, short: list[str], scope: str, columns: list[Schema], schema: Schema) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
                "categories": ["dovetail"],
            },
            "scope": scope,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def render(crd: Schema) -> str:
    """The CRD as YAML, with a line that says where it comes from."""
    head = "# Generated from core/dovetail/api by `make crds`; change the types there.\n"
    return head + yaml.dump(crd, sort_keys=False, width=110, allow_unicode=True, Dumper=_NoAliases)


class _NoAliases(yaml.SafeDumper):
    """Writes equal parts out each time: anchors are hard to read and some tools refuse them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def crds() -> tuple[Schema, ...]:
    """All CRDs of this version."""
    return gpujob_crd(), gpunode_crd(), gpunodetenants_crd(), gpuquota_crd(), historyquery_crd()


def files() -> dict[str, str]:
    """File name to content."""
    return {f"{each['spec']['names']['plural']}.yaml": render(each) for each in crds()}


def main() -> None:
    """Write the CRDs into the folder that the command line names."""
    (folder,) = sys.argv[1:]
    for name, text in files().items():
        Path(folder, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
