"""`POST /convert` as the API server calls it, and as nobody should."""

import io
import json
from typing import Any

import aiohttp
import pytest

from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.process import serving
from dovetail_webhook import converter
from dovetail_webhook.app import MAX_CONVERSION_BYTES, application
from dovetail_webhook.handler import Reviewer
from dovetail_webhook.metrics import Metrics

ALPHA, BETA = "dovetail.dev/v1alpha1", "dovetail.dev/v1beta1"
QUOTA = {"apiVersion": ALPHA, "kind": "GPUQuota", "metadata": {"name": "a"}, "spec": {"runningJobs": 3}}
CONVERSIONS = "dovetail_webhook_reviews_total"


def make_review(*objects: Any, to: Any = BETA, **request: Any) -> dict[str, Any]:
    whole = {"uid": "u-1", "desiredAPIVersion": to, "objects": list(objects), **request}
    return {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": whole}


async def post(*bodies: Any, metrics: Metrics | None = None) -> list[tuple[int, str]]:
    """Status and text of each answer, of one server."""
    app = application(Reviewer(policy="Balanced", vendors=DEFAULT_VENDORS), metrics=metrics or Metrics())
    found = []
    async with serving.listening(app, host="127.0.0.1", port=0) as port, aiohttp.ClientSession() as http:
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            async with http.post(f"http://127.0.0.1:{port}/convert", data=io.BytesIO(data)) as got:
                found.append((got.status, await got.text()))
    return found


async def converted(body: Any) -> dict[str, Any]:
    ((status, text),) = await post(body)
    answer = json.loads(text)
    assert (status, answer["apiVersion"], answer["kind"]) == (200, "apiextensions.k8s.io/v1", "ConversionReview")
    assert answer["response"]["uid"] == "u-1"
    response: dict[str, Any] = answer["response"]
    return response


async def test_objects_are_converted_in_their_order() -> None:
    other = {**QUOTA, "apiVersion": BETA, "spec": {"shares": 2}}
    response = await converted(make_review(QUOTA, other))
    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"] == [{**QUOTA, "apiVersion": BETA, "spec": {"limit": {"runningJobs": 3}}}, other]


HOSTILE = [
    (make_review({"apiVersion": ALPHA, "kind": "Pod"}), 'kind "Pod": expected one of GPUQuota'),
    (make_review(QUOTA, to="dovetail.dev/v7"), 'desired apiVersion "dovetail.dev/v7": expected one of'),
    (make_review({**QUOTA, "apiVersion": "v1"}), 'apiVersion "v1": expected one of'),
    (make_review({**QUOTA, "spec": [1]}), "spec (a list): expected an object"),
    (make_review({**QUOTA, "spec": {"limit": "\ud800"}}), "JSON is malformed"),
    (make_review(QUOTA, {**QUOTA, "spec": None}), "spec null: expected an object"),
    (make_review("text"), "Expected `object`"),
    (make_review(QUOTA, to=7), "Expected `str`"),
    (make_review(QUOTA, objects={}), "Expected `array`"),
    ({**make_review(QUOTA), "apiVersion": "admission.k8s.io/v1"}, "expected a ConversionReview of apiextensions"),
    ({**make_review(QUOTA), "kind": "AdmissionReview"}, "expected a ConversionReview of apiextensions"),
    (make_review(*[{"a": [[]] * 3000}] * 300), "a list of at most 96 MiB is converted"),
]


@pytest.mark.parametrize(("body", "problem"), HOSTILE, ids=[problem for _, problem in HOSTILE])
async def test_what_cannot_be_converted_fails_with_a_sentence(body: dict[str, Any], problem: str) -> None:
    response = await converted(body)
    assert response["result"]["status"] == "Failure"
    assert response["convertedObjects"] == []
    assert problem in response["result"]["message"]


UNREADABLE = [
    (b"", 400),
    (b"\xff\xfe", 400),
    (b"no JSON", 400),
    (b"[" * 100_000, 400),
    (b'{"kind": "ConversionReview"}', 400),
    (b'{"request": {"uid": 7}}', 400),
    (json.dumps(make_review(QUOTA)).encode()[:-9] + b" " * (13 << 20), 413),
]


async def test_what_is_no_review_is_refused_and_the_next_review_is_answered() -> None:
    metrics = Metrics()
    answers = await post(*(body for body, _ in UNREADABLE), make_review(QUOTA), metrics=metrics)
    assert [status for status, _ in answers] == [*(status for _, status in UNREADABLE), 200]
    assert answers[-2][1] == f"the body is above {MAX_CONVERSION_BYTES} bytes\n"
    labels = {"kind": "ConversionReview", "outcome": "converted"}
    assert metrics.registry.get_sample_value(CONVERSIONS, labels) == 1


def stored(name: str, *, users: int) -> dict[str, Any]:
    """A quota as a list has it: with managed fields, conditions, and the use of so many users."""
    fields: dict[str, Any] = {
        f"f:{field}": {} for field in ("namespaces", "gpus", "guaranteed", "parent", "runningJobs", "shares")
    }
    managed = [
        {"manager": manager, "operation": "Apply", "apiVersion": BETA, "fieldsType": "FieldsV1", "fieldsV1": fields}
        for manager in ("kubectl", "dovetail-operator")
    ]
    use = {"gpus": 1.5, "memoryMiB": 81920, "runningJobs": 3, "queuedJobs": 4, "gpuSeconds": 123456.75}
    status = {"gpus": 4.0, "uses": [{"who": f"user-{at:04}@example.com", **use} for at in range(users)]}
    metadata = {"name": name, "uid": "u" * 36, "resourceVersion": "123456", "managedFields": managed}
    return {**QUOTA, "metadata": metadata, "spec": {"namespaces": [name], "gpus": 8}, "status": status}


@pytest.mark.parametrize(("quotas", "users"), [(4500, 1), (80, 1024)])
async def test_the_quotas_of_a_large_cluster_are_converted_in_one_review(quotas: int, users: int) -> None:
    response = await converted(make_review(*(stored(f"q{at}", users=users) for at in range(quotas))))
    assert response["result"] == {"status": "Success"}
    assert len(response["convertedObjects"]) == quotas


async def test_a_list_beyond_the_bound_fails_with_its_size() -> None:
    response = await converted(make_review(*[QUOTA] * 1000, *[{}] * 500_000))
    assert "MiB, and a list of at most 96 MiB is converted" in response["result"]["message"]


async def test_a_bug_is_one_failed_review_and_names_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(converter, "convert_object", break_)
    response = await converted(make_review(QUOTA))
    assert "an error of its own with this object; its log names the uid u-1" in response["result"]["message"]
