"""NVIDIA's provider as the agent asks it: at once, with what is known, and with its age."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from dovetail_agent.devices.discovery import MeasuredProvider
from dovetail_agent.devices.model import InventoryUnreadable, Sample
from dovetail_agent.devices.poller import Paces, Watch
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, make_node
from tests.agent.nvml_stub import DRIVER_NOT_LOADED, Scenario, Stub

NODE = make_node("gpu-1", devices=None)
WatchOn = Callable[..., Watch]


def provider_on(watch: Watch) -> MeasuredProvider:
    return MeasuredProvider(watch, name="nvml", node="gpu-1", silence=timedelta(seconds=60))


def asked(provider: MeasuredProvider, *, seconds_later: int = 0) -> Sample:
    now = NOON + timedelta(seconds=seconds_later)
    return provider.sample(provider.inventory(NODE), node=NODE, tenants=[], now=now)


def test_it_serves_the_node_that_it_is_on_and_no_other(nvml: Stub, watch_on: WatchOn) -> None:
    provider = provider_on(watch_on())
    assert provider.serves(NODE)
    assert not provider.serves(make_node("gpu-2"))


def test_a_driver_that_hangs_leaves_what_was_known_with_its_time(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    provider = provider_on(watch_on())
    assert asked(provider, seconds_later=60).measured_at == NOON


def test_the_report_says_when_it_was_measured(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    provider, later = provider_on(watch_on()), NOON + timedelta(seconds=60)
    sample = asked(provider, seconds_later=60)
    status = node_status.readable(
        provider.inventory(NODE), sample=sample, provider="nvml", tenants=[], previous=None, now=later
    )
    assert (status.measured_at, status.observed_at) == ("2026-11-21T12:00:00Z", "2026-11-21T12:01:00Z")


def test_figures_that_are_too_old_are_no_figures_any_more(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    provider = provider_on(watch_on())
    with pytest.raises(InventoryUnreadable) as caught:
        asked(provider, seconds_later=61)
    assert str(caught.value) == ("node gpu-1: NVML does not answer; the devices were last read at 2026-11-21T12:00:00Z")


def test_the_call_that_hangs_is_named_and_the_sentence_stays_the_same(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=1))
    watch = watch_on(paces=Paces(look=0.01, ending=0.01))
    nvml.play(Scenario(cards=1, delays_ms={"nvmlDeviceGetClockInfo": 60_000}))
    while watch.waiting_for != "nvmlDeviceGetClockInfo":
        assert not watch.known.problem
    sentences = []
    for later in (61, 300):
        with pytest.raises(InventoryUnreadable) as caught:
            asked(provider_on(watch), seconds_later=later)
        sentences.append(str(caught.value))
    told = "NVML: nvmlDeviceGetClockInfo does not answer; the devices were last read at 2026-11-21T12:00:00Z"
    assert sentences == [f"node gpu-1: {told}"] * 2


def test_a_driver_that_hangs_from_the_start_is_named_with_its_call(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=1, delays_ms={"nvmlDeviceGetCount_v2": 60_000}))
    watch = watch_on(first_look=False)
    while watch.waiting_for != "nvmlDeviceGetCount":
        assert not watch.looked.is_set()
    with pytest.raises(InventoryUnreadable, match="gpu-1: NVML: the devices have not been read yet"):
        provider_on(watch).inventory(NODE)


def test_a_library_without_its_driver_is_a_sentence(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(answers=[("nvmlInitWithFlags", -1, DRIVER_NOT_LOADED)]))
    with pytest.raises(InventoryUnreadable) as caught:
        provider_on(watch_on()).inventory(NODE)
    assert str(caught.value) == "node gpu-1: NVML: driver not loaded"


def test_whom_kubelet_gave_what_is_not_for_nvml_to_say(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario())
    provider = provider_on(watch_on())
    assert provider.assignments(provider.inventory(NODE), node=NODE, tenants=[], previous=[]) == []


def test_each_look_of_the_watch_is_news(nvml: Stub, watch_on: WatchOn) -> None:
    nvml.play(Scenario(cards=1))
    watch, heard = watch_on(paces=Paces(look=0.01, ending=0.01)), threading.Event()
    provider_on(watch).listen(heard.set)
    assert heard.wait(60)
