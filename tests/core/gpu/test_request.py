import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.gpu.request import (
    MAX_MEMORY_MIB,
    MAX_NOMINAL_GB,
    MOST_CHARACTERS,
    NO_REQUEST_PATTERN,
    PATTERN,
    GPURequest,
    RequestError,
    parse,
)

MODELS = st.sampled_from(["V100", "T4", "A100-SXM4-80GB", "RTX 3090", "V100M32", "MI300X"])

MEMORIES = st.just({}) | st.fixed_dictionaries(
    {"memory_mib": st.integers(1, 10**6)}
) | st.fixed_dictionaries({"memory_percent": st.integers(1, 100)})  # fmt: skip
NODES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True)


@st.composite
def requests(draw: st.DrawFn) -> GPURequest:
    share = draw(st.integers(1, 1000))
    count = draw(st.integers(1, 9999))
    index = draw(st.none() | st.integers(0, 999)) if count == 1 else None
    return GPURequest(
        count=count,
        share_milli=share,
        **draw(MEMORIES),
        models=tuple(draw(st.lists(MODELS, max_size=3))),
        excluded_models=tuple(draw(st.lists(MODELS, max_size=2))),
        vendor=draw(st.sampled_from([None, "nvidia", "amd", "intel", "ascend"])),
        min_nominal_gb=draw(st.none() | st.integers(1, MAX_NOMINAL_GB)),
        device_index=index,
        device_node=None if index is None else draw(st.none() | NODES),
    )


def read(text: str) -> GPURequest | RequestError:
    try:
        return parse(text)
    except RequestError as error:
        return error


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("2", GPURequest(count=2)),
        ("0.5", GPURequest(share_milli=500)),
        ("2(V100)", GPURequest(count=2, models=("V100",))),
        ("4(A100)", GPURequest(count=4, models=("A100",))),
        ("1(nvidia,V100)", GPURequest(vendor="nvidia", models=("V100",))),
        ("8G,0.5", GPURequest(share_milli=500, memory_mib=8192)),
        ("16G,0.75", GPURequest(share_milli=750, memory_mib=16384)),
        ("8G,0.5(T4)", GPURequest(share_milli=500, memory_mib=8192, models=("T4",))),
        ("2x8G,0.5", GPURequest(count=2, share_milli=500, memory_mib=8192)),
        ("2（V100）", GPURequest(count=2, models=("V100",))),
        ("1（nvidia，V100）", GPURequest(vendor="nvidia", models=("V100",))),
        ("8GiB, 0.5", GPURequest(share_milli=500, memory_mib=8192)),
        ("1.5G,0.25", GPURequest(share_milli=250, memory_mib=1536)),
        ("512M,0.125", GPURequest(share_milli=125, memory_mib=512)),
        ("8(V100M16|V100M32)", GPURequest(count=8, models=("V100M16", "V100M32"))),
        ("0.5@cuda:1", GPURequest(share_milli=500, device_index=1)),
        ("1@gpu-3.rack/cuda:0", GPURequest(device_index=0, device_node="gpu-3.rack")),
        ("2(>=32G)", GPURequest(count=2, min_nominal_gb=32)),
        ("1(V100|A100,>=16G)", GPURequest(models=("V100", "A100"), min_nominal_gb=16)),
        ("1(nvidia, >= 16GB )", GPURequest(vendor="nvidia", min_nominal_gb=16)),
        ("1（nvidia，V100，＞＝16gib）", GPURequest(vendor="nvidia", models=("V100",), min_nominal_gb=16)),
        ("1(>=9999G)@cuda:1", GPURequest(min_nominal_gb=9999, device_index=1)),
        ("2x32G,1", GPURequest(count=2, memory_mib=32768)),
        ("2(!T4)", GPURequest(count=2, excluded_models=("T4",))),
        ("2(nvidia,! T4 ,!P4)", GPURequest(count=2, vendor="nvidia", excluded_models=("T4", "P4"))),
        ("1（V100，！V100M16，>=16G）", GPURequest(models=("V100",), excluded_models=("V100M16",), min_nominal_gb=16)),
        ("50%,0.5", GPURequest(share_milli=500, memory_percent=50)),
        ("2x30％，0.3(A100)", GPURequest(count=2, share_milli=300, memory_percent=30, models=("A100",))),
        ("100%,1", GPURequest(memory_percent=100)),
        (" 3 ", GPURequest(count=3)),
        (3, GPURequest(count=3)),
    ],
)
def test_a_request_is_read_as_the_design_says(text: str | int, request_: GPURequest) -> None:
    assert parse(text) == request_


@pytest.mark.parametrize(
    ("unit", "mib"),
    [
        ("M", 1),
        ("MB", 1),
        ("Mi", 1),
        ("MiB", 1),
        ("G", 1024),
        ("GB", 1024),
        ("Gi", 1024),
        ("GiB", 1024),
        ("gb", 1024),
    ],
)
def test_every_memory_unit_is_binary(unit: str, mib: int) -> None:
    assert parse(f"3{unit},0.5").memory_mib == 3 * mib


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("2", GPURequest(count=2)),
        ("0.125", GPURequest(share_milli=125)),
        ("3x0.5", GPURequest(count=3, share_milli=500)),
        ("8G,1", GPURequest(memory_mib=8192)),
        ("2x8G,1", GPURequest(count=2, memory_mib=8192)),
        ("8191M,0.5", GPURequest(share_milli=500, memory_mib=8191)),
        ("1(amd,MI300X)", GPURequest(vendor="amd", models=("MI300X",))),
        ("2(>=32G)", GPURequest(count=2, min_nominal_gb=32)),
        ("2(nvidia,V100|A100,>=16G)", GPURequest(count=2, vendor="nvidia", models=("V100", "A100"), min_nominal_gb=16)),
        (
            "2(nvidia,A100,!A100M40,!T4,>=16G)",
            GPURequest(
                count=2, vendor="nvidia", models=("A100",), excluded_models=("A100M40", "T4"), min_nominal_gb=16
            ),
        ),
        ("2x50%,1", GPURequest(count=2, memory_percent=50)),
        ("1%,0.5(!T4)", GPURequest(share_milli=500, memory_percent=1, excluded_models=("T4",))),
        ("0.5@cuda:1", GPURequest(share_milli=500, device_index=1)),
        ("1@gpu-3.rack/cuda:0", GPURequest(device_index=0, device_node="gpu-3.rack")),
    ],
)
def test_a_request_prints_as_the_shortest_text_that_means_it(text: str, request_: GPURequest) -> None:
    assert str(request_) == text


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("9999", GPURequest(count=9999)),
        ("1000.0", GPURequest(count=1000)),
        ("0.001", GPURequest(share_milli=1)),
        ("1M,1", GPURequest(memory_mib=1)),
        (f"{MAX_MEMORY_MIB}M,1", GPURequest(memory_mib=1 << 40)),
        (f"1({'V' * 128})", GPURequest(models=("V" * 128,))),
        (f"{'0' * 63}2", GPURequest(count=2)),
    ],
)
def test_the_largest_and_smallest_allowed_values_are_read(text: str, request_: GPURequest) -> None:
    assert parse(text) == request_


@pytest.mark.parametrize(
    ("text", "problem", "character"),
    [
        ("0", "must be above 0", 1),
        ("-1", 'expected a number, not "-"', 1),
        ("1.5", "a number of GPUs above 1 must be whole", 1),
        ("8X,0.5", 'unknown memory unit "X" (allowed: M, G, %)', 2),
        ("", "empty request", 1),
        ("NaN", 'expected a number, not "N"', 1),
        ("8G", "memory needs a share after a comma, such as 8G,0.5", 3),
        ("8G,2", "a share must be at most 1", 4),
        ("0.0001", "a share has at most three decimals", 1),
        ("2(", 'a bracket is not closed: expected ")"', 2),
        ("2(nv,V100)", 'unknown vendor "nv" (allowed: nvidia, amd, intel, ascend; models are joined by |)', 3),
        ("2(V100,A100)", 'unknown vendor "V100" (allowed: nvidia, amd, intel, ascend; models are joined by |)', 3),
        ("2()", '"" is no model name', 3),
        ("2(V100)x", 'unexpected "x"', 8),
        ("2(>=0G)", '">=0G" is no size: allowed are whole GB from >=1G to >=9999G', 3),
        ("2(>=10000G)", '">=10000G" is no size: allowed are whole GB from >=1G to >=9999G', 3),
        ("2(>=32)", '">=32" is no size: allowed are whole GB from >=1G to >=9999G', 3),
        ("2(>32G)", '">32G" is no size: allowed are whole GB from >=1G to >=9999G', 3),
        ("2(>=1.5G)", '">=1.5G" is no size: allowed are whole GB from >=1G to >=9999G', 3),
        ("2(>=32G,V100)", "a size such as >=32G comes last in the brackets", 3),
        ("2(>=32G,>=16G)", "a size such as >=32G comes last in the brackets", 3),
        ("2(,>=32G)", '"" is no model name', 3),
        ("2(!)", '"" is no model name', 3),
        ("2(!T4|P4)", "models that are excluded stand alone, after a comma each, such as 2(!T4,!P4)", 3),
        ("2(!!T4)", "models that are excluded stand alone, after a comma each, such as 2(!T4,!P4)", 3),
        ("2(V100|!T4)", "models that are excluded stand alone, after a comma each, such as 2(!T4,!P4)", 3),
        ("2(!T4,V100)", 'unknown vendor "!T4" (allowed: nvidia, amd, intel, ascend; models are joined by |)', 3),
        ("0%,0.5", "percent of memory must be a whole number from 1 to 100", 1),
        ("2x101%,0.5", "percent of memory must be a whole number from 1 to 100", 3),
        ("1.5%,0.5", "percent of memory must be a whole number from 1 to 100", 1),
        ("50%", "memory needs a share after a comma, such as 8G,0.5", 4),
        ("1g.10gb(!A30)", "the brackets of a MIG profile name models alone, such as 1g.10gb(H100)", 1),
        ("10000", "the number of GPUs must be whole, from 1 to 9999", 1),
        ("2@a/cuda:1", "a device index goes with one GPU only", 2),
        ("1@A/cuda:1", "expected a device such as @cuda:1 or @NODE/cuda:1", 2),
        ("1@" + "a" * 254 + "/cuda:1", "expected a device such as @cuda:1 or @NODE/cuda:1", 2),
        ("2@cuda:1", "a device index goes with one GPU only", 2),
        ("1@gpu:1", "expected a device such as @cuda:1 or @NODE/cuda:1", 2),
        ("2(" + "V" * 129 + ")", "a model's name has at most 128 characters", 3),
        ("0G,0.5", "memory must be a whole number of MiB, at least 1", 1),
        ("2x1.5M,0.5", "memory must be a whole number of MiB, at least 1", 3),
        ("2x1099511627777M,1", "memory may be 1099511627776 MiB at most", 3),
        ("2.5x0.5", "the number of GPUs must be whole, from 1 to 9999", 1),
        ("0x0.5", "the number of GPUs must be whole, from 1 to 9999", 1),
        ("10000x0.5", "the number of GPUs must be whole, from 1 to 9999", 1),
        ("2x8G,", "expected a number", 6),
        ("٣", 'expected a number, not "٣"', 1),
        (f"{'0' * 64}2", "a number has at most 64 digits", 1),
    ],
)
def test_an_error_names_the_text_the_place_and_an_example(text: str, problem: str, character: int) -> None:
    with pytest.raises(RequestError) as caught:
        parse(text)
    assert str(caught.value).startswith(f'gpu "{text}": {problem} at character {character}; write for example 2, 0.5')


@pytest.mark.parametrize(
    "text", ["9" * 5000, f"{'9' * 5000}G,0.5", f"0.{'5' * 5000}", f"{'9' * 5000}x0.5", f"8G,{'9' * 5000}"]
)
def test_thousands_of_digits_are_refused_in_a_sentence(text: str) -> None:
    found = read(text)
    assert isinstance(found, RequestError)
    assert "a number has at most 64 digits" in str(found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("\n", r'gpu "\n": '), ("x" * 384, f'gpu "{"x" * 384}": '), ("x" * 385, f'gpu "{"x" * 384}…": ')],
)
def test_an_error_repeats_at_most_384_characters_and_escapes_control_characters(text: str, shown: str) -> None:
    assert str(read(text)).startswith(shown)


def test_an_error_describes_the_problem_in_at_most_1024_characters() -> None:
    assert f": {'p' * 1024};" in str(RequestError("2", problem="p" * 1024))
    assert f": {'p' * 1024}…;" in str(RequestError("2", problem="p" * 1025))


@given(st.text(min_size=1) | st.just("2(V100)\x00") | st.just("9" * 9999) | st.just("1\n2"))
def test_an_error_is_one_short_line_that_can_be_seen(text: str) -> None:
    found = read(text)
    if isinstance(found, RequestError):
        assert str(found).isprintable()
        assert len(str(found)) < 1600


def test_a_text_longer_than_any_request_is_refused_before_it_is_read() -> None:
    """A text of 500,000 models took minutes, and each reader of the pod remembered it."""
    assert parse("1" + " " * (MOST_CHARACTERS - 1)) == GPURequest(count=1)
    text = f"1({'!A,' * 500_000}!A)"
    with pytest.raises(RequestError, match="it has 1500005 characters, and at most 8192 are allowed; write") as refused:
        parse(text)
    assert len(str(refused.value)) < 1_000


def test_the_longest_text_of_the_structured_form_is_no_longer_than_is_allowed() -> None:
    models = tuple(f"{at:02}".ljust(63, "A") for at in range(32))
    request = GPURequest(
        share_milli=999, memory_mib=MAX_MEMORY_MIB, vendor="ascend", models=models[:16], excluded_models=models[16:],
        min_nominal_gb=MAX_NOMINAL_GB, device_index=999, device_node="a" * 253,
    )  # fmt: skip
    assert parse(str(request)) == request


@given(requests())
def test_reading_what_was_printed_gives_the_same_request(request_: GPURequest) -> None:
    assert parse(str(request_)) == request_


@given(requests())
def test_the_schema_admits_every_printed_request(request_: GPURequest) -> None:
    assert re.fullmatch(PATTERN, str(request_))


@given(st.text(max_size=24) | st.from_regex(r"[0-9xXGM.,()|@cuda:/ V（），>=!%-]{0,16}", fullmatch=True))
@example("²")
@example("٣")
def test_no_text_crashes_the_parser(text: str) -> None:
    found = read(text)
    if isinstance(found, RequestError):
        assert 0 <= (found.position or 0) <= len(text)


@given(st.from_regex(PATTERN, fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_what_the_schema_admits_is_read_but_for_memory_in_parts_of_a_mib(text: str) -> None:
    found = read(text)
    if isinstance(found, RequestError) and not re.search(NO_REQUEST_PATTERN, text):
        assert found.problem == "memory must be a whole number of MiB, at least 1"
