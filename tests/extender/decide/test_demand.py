"""What pods ask is read once for each version of them."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.engine.model.ranking import Range, Ranking, Rankings
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.request import RequestError
from dovetail_extender.decide.demand import REMEMBERED, Asks


def make_pod(
    gpu: str = "0.5", *, milli: str = "500", version: str = "1", namespace: str = "a", weights: str = ""
) -> Pod:
    meta: dict[str, Any] = {
        "uid": "pod", "resourceVersion": version, "namespace": namespace, "annotations": {names.REQUEST: gpu},
    }  # fmt: skip
    if weights:
        meta["annotations"][names.SCORE_WEIGHTS] = weights
    limits = {names.GPU_MILLI: milli}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


@pytest.fixture
def asks() -> Asks:
    return Asks(rankings=Rankings(by_namespace={"tidy": Ranking(policy="Pack")}), vendors=DEFAULT_VENDORS)


def test_a_version_of_a_pod_is_read_once(asks: Asks) -> None:
    first = asks.request(make_pod())
    assert first is not None
    assert asks.request(make_pod()) is first


def test_another_version_is_read_anew(asks: Asks) -> None:
    asks.request(make_pod())
    changed = asks.request(make_pod("0.25", milli="250", version="2"))
    assert changed is not None
    assert changed.gpu is not None
    assert changed.gpu.share_milli == 250


def test_a_pod_that_tells_no_version_is_read_each_time(asks: Asks) -> None:
    asks.request(make_pod(version=""))
    changed = asks.request(make_pod("0.25", milli="250", version=""))
    assert changed is not None
    assert changed.gpu is not None
    assert changed.gpu.share_milli == 250


def test_a_request_that_cannot_be_read_is_an_error_each_time(asks: Asks) -> None:
    for _ in range(2):
        with pytest.raises(RequestError):
            asks.request(make_pod("1.5"))


def test_weights_out_of_the_namespace_s_bounds_are_an_error_until_the_bounds_change(asks: Asks) -> None:
    pod = make_pod(weights="cpu=2")
    asks.configure(rankings=Rankings(by_namespace={"a": Ranking(allowed={"cpu": Range(high=1)}, namespace="a")}))
    with pytest.raises(RequestError, match=r'score-weights.cpu "2": must be from 0 to 1 in namespace a;'):
        asks.request(pod)
    asks.configure(rankings=Rankings())
    asked = asks.request(pod)
    assert asked is not None
    assert asked.weights.cpu == 2


def test_a_namespace_may_have_a_policy(asks: Asks) -> None:
    asked = asks.request(make_pod(namespace="tidy"))
    assert asked is not None
    assert asked.policy == "Pack"


def test_of_very_many_pods_the_first_is_read_again(asks: Asks) -> None:
    first, second = (asks.request(make_pod(version=str(number))) for number in (1, 2))
    for number in range(3, REMEMBERED + 2):
        asks.request(make_pod(version=str(number)))
    assert asks.request(make_pod(version="2")) is second
    again = asks.request(make_pod(version="1"))
    assert again == first
    assert again is not first


@pytest.mark.parametrize("missing", ["uid", "resource_version"])
def test_a_pod_without_a_uid_or_a_version_is_not_kept(asks: Asks, missing: str) -> None:
    pod = make_pod()
    unnamed = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **{missing: ""}))
    assert asks.request(unnamed) is not asks.request(unnamed)


def test_a_version_number_of_another_pod_is_another_request(asks: Asks) -> None:
    asks.request(make_pod())
    pod = make_pod("0.25", milli="250")
    other = asks.request(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="other")))
    assert other is not None
    assert other.gpu is not None
    assert other.gpu.share_milli == 250
