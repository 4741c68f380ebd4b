"""The guides' calls, Python, request texts and YAML on a cluster."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from dovetail.sdk import GPUResourceParser
from tests.guides import calls, comparing
from tests.guides.manifest import Expected, text_of, those
from tests.guides.place import Place
from tests.polling import until

pytestmark = pytest.mark.cluster
Played = Callable[[str], Mapping[int, dict[str, Any]]]


@those("sandbox", "curl")
def test_a_call_answers_with_the_guides_fields(block: Expected, sandbox: Place) -> None:
    assert calls.called(block, place=sandbox) == []


@those("sandbox", "refusal")
def test_a_device_that_does_not_exist_is_refused(block: Expected, sandbox: Place) -> None:
    assert re.search(r"\b2\b", text_of(block))
    assert calls.refused(place=sandbox) == []


@those("sandbox", "python")
def test_python_prints_and_makes_what_the_guide_says(block: Expected, played: Played) -> None:
    found = played(block.guide)[block.at]
    assert not found["error"], found["error"]
    assert comparing.lines(found["printed"], expected=block.prints) == []
    looked = found["looked"]
    assert {text: looked[text]["value"] for text in block.values or {}} == (block.values or {})
    assert {text: looked[text]["type"] for text in block.types} == dict(block.types)


@those("sandbox", "request")
def test_a_request_text_asks_for_what_the_guide_says(block: Expected) -> None:
    texts = re.findall(r'"([^"]+)"', text_of(block))
    parser = GPUResourceParser()
    for text, expected in zip(texts, block.requests, strict=True):
        found = parser.parse_gpu_resource(text)
        unsaid = {"memory_gb": None, "vendor": None, "model": None}
        assert {name: getattr(found, name) for name in [*unsaid, *expected]} == unsaid | dict(expected), text


@those("sandbox", "pod")
def test_a_pod_with_the_guides_resources_runs(block: Expected, sandbox: Place) -> None:
    container = {"name": "main", "image": "busybox", **yaml.safe_load(text_of(block))}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guide"}, "spec": {"containers": [container]}}
    sandbox.kubectl("apply", "--namespace=default", "--filename=-", stdin=yaml.safe_dump(pod))
    read = ["get", "pod", "guide", "--namespace=default", "--output=yaml"]

    def shown() -> Any:
        return yaml.safe_load(sandbox.kubectl(*read))

    until(lambda: comparing.values(shown(), expected=block.values) == [], what=lambda: str(shown()["status"]))
    sandbox.kubectl("delete", "pod", "guide", "--namespace=default")
