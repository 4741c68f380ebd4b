"""Generated parts of the chart: its README's table of values and the descriptions in its schema, from the comments in
values.yaml, the schema of its value `config`, from the settings that the programs load, and that of a task's template,
from the CRD of GPUJobs.

`python -m tests.chart.generated` writes them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from dovetail.api.crd import gpujob_crd
from dovetail.config.settings import Settings
from dovetail_sandbox.installed.chart import BUILT_IMAGES

CHART: Final = Path(__file__).parents[2] / "helm" / "dovetail"
# The option without which the chart is refused: where the images are. Nothing here pulls one.
IMAGES: Final = f"--set=image.registry={BUILT_IMAGES}"
BEGIN: Final = "<!-- values: written by `python -m tests.chart.generated` -->"
END: Final = "<!-- end of values -->"
_KEPT: Final = ("description", "type", "enum", "pattern", "minimum", "maximum", "anyOf", "required")
# pydantic leaves these as they are where a validator stands before them.
_OF_CRDS: Final = (
    "type", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "required",
)  # fmt: skip
_ALLOWED: Final = re.compile(r"self in \[(.*)\]")
_BOUNDS: Final = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}


class Value(NamedTuple):
    """One value that an installer may set."""

    path: str
    default: Any
    description: str


def values() -> Iterator[Value]:
    """Every value that has a `# -- ` comment, in the file's order."""
    text = CHART.joinpath("values.yaml").read_text(encoding="utf-8")
    tree = yaml.safe_load(text)
    keys: list[str] = []
    description = ""
    for line in text.splitlines():
        if comment := re.match(r" *# -- (.*)", line):
            description = comment[1]
        elif key := re.match(r"( *)(\w+):", line):
            keys = [*keys[: len(key[1]) // 2], key[2]]
            if description:
                yield Value(".".join(keys), _at(tree, keys), description)
            description = ""


def table() -> str:
    """The table in Markdown."""
    rows = [f"| `{path}` | `{json.dumps(default)}` | {text} |" for path, default, text in values()]
    return "\n".join(["| Value | Default | Meaning |", "| --- | --- | --- |", *rows])


def config_schema() -> dict[str, Any]:
    """The JSON schema of the value `config`: every key of gpu_config.yaml and no other."""
    whole = Settings.model_json_schema()
    (described,) = (value.description for value in values() if value.path == "config")
    pruned: dict[str, Any] = _pruned(whole, definitions=whole["$defs"])
    return pruned | {"description": described}


def task_schema() -> dict[str, Any]:
    """The JSON schema of a task's template: the spec of a GPUJob, with resources and a container."""
    whole = gpujob_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema = _plain(whole) | {"required": ["resources", "template"]}
    pod = schema["properties"]["template"]["properties"]["spec"]
    pod["required"] = ["containers"]
    pod["properties"]["containers"]["minItems"] = 1
    return schema


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of a CRD as plain JSON schema: closed, and with the rules that only list what is allowed."""
    plain = {key: schema[key] for key in _OF_CRDS if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        plain["type"] = ["integer", "string"]
    for rule in schema.get("x-kubernetes-validations", ()):
        if listed := _ALLOWED.fullmatch(rule["rule"]):
            plain["enum"] = listed[1].replace("'", "").split(", ")
    if "items" in schema:
        plain["items"] = _plain(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        plain["additionalProperties"] = _plain(schema["additionalProperties"])
    if "properties" in schema:
        plain["properties"] = {name: _plain(value) for name, value in schema["properties"].items()}
        plain["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return plain


def _pruned(schema: Any, *, definitions: dict[str, Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", maxsplit=1)[1]] | schema
    pruned = {key: schema[key] for key in _KEPT if key in schema}
    pruned |= {name: schema[key] for key, name in _BOUNDS.items() if key in schema}
    if "additionalProperties" in schema:
        pruned["additionalProperties"] = _pruned(schema["additionalProperties"], definitions=definitions)
    if "patternProperties" in schema:
        patterns = schema["patternProperties"].items()
        pruned["patternProperties"] = {key: _pruned(value, definitions=definitions) for key, value in patterns}
        pruned["additionalProperties"] = False
    if "items" in schema:
        pruned["items"] = _pruned(schema["items"], definitions=definitions)
    if "properties" in schema:
        pruned["properties"] = {
            name: _pruned(value, definitions=definitions) for name, value in schema["properties"].items()
        }
    return pruned


def _at(tree: Any, keys: list[str]) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def main() -> None:
    """Replace the generated parts."""
    readme = CHART / "README.md"
    before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
    path = CHART / "values.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    schema["properties"]["config"] = config_schema()
    schema["$defs"] = {"task": task_schema()}
    for value in values():
        at = schema
        for key in value.path.split("."):
            at = at["properties"][key]
        at["description"] = value.description
    path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
