"""What pods ask is read once for each version of them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.engine.model.ranking import Ranking, Rankings
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.request import RequestError
from dovetail_extender.decide.filter_score import REMEMBERED, Asks
from tests.spec_values import CARRIED


def make_pod(
    gpu: str = "0.5",
    *,
    milli: str = "500",
    version: str = "1",
    namespace: str = "a",
    said: Mapping[str, str] = MappingProxyType({}),
    **limits: str,
) -> Pod:
    meta: dict[str, Any] = {
        "uid": "pod", "resourceVersion": version, "namespace": namespace, "annotations": {names.REQUEST: gpu, **said},
    }  # fmt: skip
    amounts = {names.GPU_MILLI: milli, **limits}
    spec = {"containers": [{"name": "main", "resources": {"limits": amounts}}]}
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


def test_a_namespace_may_have_a_policy(asks: Asks) -> None:
    asked = asks.request(make_pod(namespace="tidy"))
    assert asked is not None
    assert asked.policy == "Pack"


def test_of_very_many_contents_the_first_is_read_again(asks: Asks) -> None:
    def of(number: int) -> Pod:
        return make_pod(version="", memory=f"{number}Mi")

    first, second = (asks.request(of(number)) for number in (1, 2))
    for number in range(3, REMEMBERED + 2):
        asks.request(of(number))
    assert asks.request(of(2)) is second
    again = asks.request(of(1))
    assert again == first
    assert again is not first


def test_pods_of_one_template_are_read_once(asks: Asks) -> None:
    first = asks.request(make_pod())
    other = make_pod(version="9")
    named = msgspec.structs.replace(other.metadata, uid="other", annotations={**other.metadata.annotations, "a/b": "c"})
    assert asks.request(msgspec.structs.replace(other, metadata=named)) is first


@given(pods=st.lists(st.builds(
    make_pod,
    st.sampled_from(["0.5", "1", "2", "1@cuda:0", "V100", "1.5", "8G,0.5"]),
    milli=st.sampled_from(["500", "1000", "2000"]),
    version=st.sampled_from(["", "1"]),
    namespace=st.sampled_from(["a", "tidy"]),
    said=st.sampled_from([{}, *({each.annotation: each.text} for each in CARRIED)]),
    memory=st.sampled_from(["1Gi", "2Gi"]),
), max_size=12))  # fmt: skip
def test_a_cached_request_is_what_reading_gives(pods: list[Pod]) -> None:
    rankings = Rankings(by_namespace={"tidy": Ranking(policy="Pack")})
    kept = Asks(rankings=rankings, vendors=DEFAULT_VENDORS)
    for at, pod in enumerate(pods):
        named = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=f"pod-{at}"))
        assert outcome(kept, named) == outcome(Asks(rankings=rankings, vendors=DEFAULT_VENDORS), named)


def outcome(asks: Asks, pod: Pod) -> Any:
    try:
        return asks.request(pod)
    except RequestError as error:
        return str(error)


def test_a_version_number_of_another_pod_is_another_request(asks: Asks) -> None:
    asks.request(make_pod())
    pod = make_pod("0.25", milli="250")
    other = asks.request(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="other")))
    assert other is not None
    assert other.gpu is not None
    assert other.gpu.share_milli == 250
