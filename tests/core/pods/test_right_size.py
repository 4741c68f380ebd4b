"""The size that a job's owner has accepted: what each worker requests at the job's next start."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpujob import MemoryUse
from dovetail.decoding import UnreadableError
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import as_started, ask_of_job
from dovetail.pods.device_plugin import asks_by_kind
from tests.operator_.builders import make_job


def started(*, use: MemoryUse | None = None, **job: Any) -> tuple[str, str]:
    """Request and mode of each worker of a job."""
    made = make_job(**job)
    ask = as_started(ask_of_job(made, ranking=DEFAULT_RANKING), job=made, use=use)
    return str(ask.gpu), ask.mode


@pytest.mark.parametrize(
    ("gpu", "size", "request_"),
    [
        (1, "8G,0.5", "8G,0.5"),
        ("2(V100)", "8G,0.5", "2x8G,0.5(V100)"),
        ("16G,0.5", "8G,0.3", "8G,0.3"),
        ("16G,0.5", "0.3", "16G,0.3"),
        ("50%,0.5", "8G,0.3", "8G,0.3"),
        ("8G,0.5", "25%,0.3", "25%,0.3"),
        ("4G,0.2", "8G,0.5", "4G,0.2"),
        ("1x1g.10gb", "8G,0.5", "1g.10gb"),
        (1, "1", "1"),
    ],
)
def test_each_device_is_requested_with_the_smaller_of_both(gpu: int | str, size: str, request_: str) -> None:
    assert started(gpu=gpu, rightSize=size) == (request_, "Exclusive" if request_ in {"1", "1g.10gb"} else "Fractional")


def test_the_structured_form_shrinks_too() -> None:
    assert started(resources={"count": 2, "models": ["V100"]}, rightSize="8G,0.5") == ("2x8G,0.5(V100)", "Fractional")


def test_who_takes_turns_goes_on_to() -> None:
    assert started(gpu="0.5", mode="TimeShared", rightSize="8G,0.3") == ("8G,0.3", "TimeShared")


def test_a_smaller_estimate_counts() -> None:
    use = MemoryUse(strategy="Dynamic", basis="", estimate_mib=2048)
    assert started(gpu=1, rightSize="8G,0.5", use=use) == ("2G,0.5", "Fractional")


@pytest.mark.parametrize("size", ["8G,0.5", None])
@pytest.mark.parametrize("placed", ["1", "12G,0.6"])
def test_a_run_keeps_the_size_of_its_plan(placed: str, size: str | None) -> None:
    mode = "Exclusive" if placed == "1" else "Fractional"
    plan = {"generation": 1, "nodes": [{"name": "a", "workers": 1}], "worker": {"request": placed, "mode": mode}}
    assert started(gpu=1, rightSize=size, status={"placement": plan}) == (placed, mode)


@pytest.mark.parametrize(
    "job",
    [
        {"mode": "Exclusive"},
        {"managedBy": names.GUESTS_MANAGER},
        {"meta": {"labels": {names.KUEUE_QUEUE: "q"}}},
    ],
    ids=["exclusive", "guest", "Kueue"],
)
def test_who_cannot_shrink_requests_what_it_did(job: dict[str, Any]) -> None:
    assert started(gpu=1, rightSize="8G,0.5", **job) == ("1", "Exclusive")


def test_a_vendor_s_plugin_gives_whole_devices() -> None:
    job = make_job(gpu=1, rightSize="8G,0.5")
    ways = asks_by_kind(ask_of_job(job, ranking=DEFAULT_RANKING))
    found = {way.resource: str(way.gpu) for way in (as_started(each, job=job, use=None) for each in ways)}
    assert found[""] == "8G,0.5"
    assert {text for resource, text in found.items() if resource} == {"1"}


@pytest.mark.parametrize("size", ["2", "2x8G,0.5", "0.5(V100)", "1g.10gb", "0.5@cuda:0", "0", "1.5"])
def test_more_than_a_part_of_a_device_is_no_right_size(size: str) -> None:
    with pytest.raises(UnreadableError, match=r"at `\$\.spec\.rightSize`"):
        make_job(rightSize=size)


def test_a_size_that_cannot_be_read_is_named() -> None:
    with pytest.raises(RequestError, match=r'rightSize "1\.5M,0\.5": memory must be a whole number of MiB, at least 1'):
        ask_of_job(make_job(rightSize="1.5M,0.5"), ranking=DEFAULT_RANKING)
