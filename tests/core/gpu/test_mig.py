"""MIG profiles, and the requests that name one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.gpu import mig
from dovetail.gpu.partition import partition
from dovetail.gpu.request import NO_REQUEST_PATTERN, PATTERN, GPURequest, RequestError, parse

PROFILES = st.builds(
    lambda slices, gb, media: f"{slices}g.{gb}gb{'+me' if media else ''}",
    st.integers(1, 7), st.integers(1, 999), st.booleans(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("1g.10gb", GPURequest(mig="1g.10gb")),
        ("2x3g.40gb", GPURequest(count=2, mig="3g.40gb")),
        (" 2X3G.40GB ", GPURequest(count=2, mig="3g.40gb")),
        ("1g.10gb+me", GPURequest(mig="1g.10gb+me")),
        ("1g.10gb.me", GPURequest(mig="1g.10gb+me")),
        ("1g.10gb(A100|H100)", GPURequest(mig="1g.10gb", models=("A100", "H100"))),
        ("3g.40gb（H100）", GPURequest(mig="3g.40gb", models=("H100",))),
    ],
)
def test_a_request_may_name_a_profile(text: str, request_: GPURequest) -> None:
    assert parse(text) == request_
    assert re.search(PATTERN, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("8g.80gb", '"8g.80gb" is no MIG profile (allowed: 1g to 7g with the memory, such as 1g.10gb or 3g.40gb)'),
        ("1g.10", '"1g.10" is no MIG profile (allowed: 1g to 7g with the memory, such as 1g.10gb or 3g.40gb)'),
        ("1g.10gb+you", '"1g.10gb+you" is no MIG profile'),
        ("0x1g.10gb", "the number of GPUs must be whole, from 1 to 9999"),
        ("1g.10gb@cuda:1", "a MIG instance cannot be named by an index"),
        ("1g.10gb(nvidia,H100)", "the brackets of a MIG profile name models alone, such as 1g.10gb(H100)"),
        ("1g.10gb(>=40G)", "the brackets of a MIG profile name models alone, such as 1g.10gb(H100)"),
        ("1g.10gb,0.5", 'unexpected ",0.5"'),
    ],
)
def test_what_is_no_profile_is_refused_with_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert text in str(caught.value)
    assert re.search(PATTERN, text) is None


@pytest.mark.parametrize(
    "text", ["1g.10gb(nvidia)", "2x3g.40gb( AMD )", "1g.10gb（intel）", "1g.10gb+me (ascend) ", "1g.10gb(nvidia )"]
)
def test_the_schema_takes_no_vendor_for_the_model_of_an_instance(text: str) -> None:
    with pytest.raises(RequestError, match="the brackets of a MIG profile name models alone"):
        parse(text)
    assert re.search(NO_REQUEST_PATTERN, text)


@pytest.mark.parametrize("text", ["1g.10gb(nvidia|H100)", "1g.10gb(Intel Max)", "1(nvidia)", "8G,0.5(nvidia)"])
def test_a_model_with_a_vendor_in_its_name_and_a_gpu_of_a_vendor_are_requests(text: str) -> None:
    parse(text)
    assert re.search(NO_REQUEST_PATTERN, text) is None
    assert re.search(PATTERN, text)


@given(profile=PROFILES, count=st.integers(1, 9999))
def test_every_profile_is_read_printed_and_admitted_by_the_schema(profile: str, count: int) -> None:
    request = GPURequest(count=count, mig=profile)
    assert parse(str(request)) == request
    assert re.search(PATTERN, str(request))
    assert mig.profile_of(mig.resource_of(profile)) == profile


def test_seven_slices_are_a_gpu() -> None:
    assert parse("7x1g.10gb").total_milli == 1000
    assert [parse(text).total_milli for text in ("1g.10gb", "3g.40gb", "7g.80gb")] == [142, 428, 1000]


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-", "nvidia.com/mig-8g.1gb", "mig-1g.5gb"])
def test_other_resources_are_of_no_profile(resource: str) -> None:
    assert mig.profile_of(resource) is None


def test_a_partition_is_at_most_seven_slices() -> None:
    assert partition("7x1g.5gb") == ("1g.5gb",) * 7
    assert partition("1x3g.20gb,2x2g.10gb") == ("3g.20gb", "2g.10gb", "2g.10gb")
    assert partition("8x1g.5gb") == partition("2") == partition("1g.5gb,x") == ()
