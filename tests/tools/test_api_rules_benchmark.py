"""The rules of two charts in turns: they are applied as the sandbox applies its own, so no field of the other stays."""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KUBECTL = """#!/usr/bin/python3
import json, sys
with open({log!r}, "a") as log:
    names = [each["metadata"]["name"] for each in json.load(sys.stdin)["items"]]
    log.write(json.dumps([[word for word in sys.argv[1:] if "cache" not in word], names]) + "\\n")
"""


@pytest.fixture
def api_rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("api_rules", "turns"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import api_rules

    return api_rules


def test_the_rules_of_one_chart_replace_those_of_the_other(
    api_rules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, kubectl = tmp_path / "log", tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(log=str(log)))
    kubectl.chmod(0o755)
    monkeypatch.setattr(api_rules.locate, "resolve", lambda names, **_: {"kubectl": kubectl})
    files = {}
    for name, policies in (("this", "ab"), ("other", "bc")):
        documents = [{"kind": "ValidatingAdmissionPolicy", "metadata": {"name": each}} for each in policies]
        files[name] = tmp_path / f"{name}.yaml"
        files[name].write_text(yaml.safe_dump_all(documents))

    asyncio.run(api_rules.use(SimpleNamespace(kubeconfig=tmp_path / "kubeconfig"), files=files, name="other"))
    deleted, applied = (json.loads(line) for line in log.read_text().splitlines())
    assert ("delete" in deleted[0], deleted[1]) == (True, ["a"])
    assert applied[1] == ["dovetail-system", "b", "c"]
    assert {"apply", "--server-side", "--field-manager=dovetail-sandbox"} <= set(applied[0])
