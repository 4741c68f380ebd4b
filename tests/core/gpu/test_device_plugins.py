from dataclasses import replace

import pytest

from dovetail.config.settings import Settings
from dovetail.engine.model.claims import Ask
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.gpu.request import RequestError, parse
from dovetail.pods.device_plugin import asks_by_kind
from tests.core.engine.builders import make_ask


@pytest.mark.parametrize(
    ("resource", "vendor"),
    [
        ("nvidia.com/gpu", "nvidia"),
        ("amd.com/gpu", "amd"),
        ("gpu.intel.com/i915", "intel"),
        ("gpu.intel.com/xe", "intel"),
        ("huawei.com/Ascend910", "ascend"),
        ("example.com/gpu", None),
        ("notnvidia.com/gpu", None),
    ],
)
def test_a_resource_means_the_vendor_of_its_domain(resource: str, vendor: str | None) -> None:
    assert DEFAULT_VENDORS.vendor_of(resource) == vendor


def test_a_resource_of_an_unknown_domain_means_the_vendor_whose_short_name_it_was_given() -> None:
    vendors = Settings(gpu_resource={"amd": "example.com/card"}).vendors
    assert vendors.vendor_of("example.com/card") == "amd"


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("2", ["nvidia.com/gpu"]),
        ("2(V100)", ["nvidia.com/gpu"]),
        ("1(amd,MI300X)", ["amd.com/gpu"]),
        ("1(MI300X)", ["amd.com/gpu"]),
        ("1(V100|MI300X)", ["nvidia.com/gpu", "amd.com/gpu"]),
        ("1(NoSuchModel)", ["nvidia.com/gpu"]),
    ],
)
def test_a_request_names_its_resources_by_vendor_by_model_or_by_default(text: str, resources: list[str]) -> None:
    assert list(DEFAULT_VENDORS.resources_for(parse(text))) == resources


def test_the_default_resource_may_be_told_by_its_short_name() -> None:
    assert Settings(default_gpu_resource_name="amd").vendors.resources_for(parse("1")) == ("amd.com/gpu",)


def test_several_resources_of_one_vendor_are_all_tried() -> None:
    vendors = Settings(gpu_resource={"xe": "gpu.intel.com/xe"}).vendors
    assert vendors.resources_for(replace(parse("1"), vendor="intel")) == ("gpu.intel.com/i915", "gpu.intel.com/xe")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("2", ["", "nvidia.com/gpu"]),
        ("1(V100)", ["", "nvidia.com/gpu"]),
        ("1(amd,MI300X)", ["amd.com/gpu"]),
        ("1(MI300X)", ["amd.com/gpu"]),
        ("0.5", [""]),
        ("8G,0.5", [""]),
        ("1@cuda:0", [""]),
    ],
)
def test_whole_devices_may_be_met_on_either_kind_of_node_and_the_rest_on_one(text: str, kinds: list[str]) -> None:
    assert [ask.resource for ask in asks_by_kind(make_ask(text))] == kinds


def test_the_configured_kind_is_tried_first() -> None:
    vendors = Vendors(first="Vendor")
    assert [ask.resource for ask in asks_by_kind(make_ask("2"), vendors=vendors)] == ["nvidia.com/gpu", ""]
    assert Settings(preferred_node_kind="Vendor").vendors.first == "Vendor"


@pytest.mark.parametrize("text", ["0.5(amd,MI300X)", "0.5(MI300X)"])
def test_a_share_of_a_device_that_is_never_managed_is_refused_with_what_could_be_had(text: str) -> None:
    with pytest.raises(RequestError, match=r"a share needs a node that Dovetail manages.*write for example 1\("):
        asks_by_kind(make_ask(text))


def test_turns_exist_on_managed_nodes_only() -> None:
    assert [ask.resource for ask in asks_by_kind(make_ask("1", mode="TimeShared"))] == [""]


def test_a_job_without_gpus_has_one_way() -> None:
    assert asks_by_kind(Ask(gpu=None)) == (Ask(gpu=None),)
