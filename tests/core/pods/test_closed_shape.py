"""Whatever a pod says, once it is completed each of its containers sees its own devices, its plugin's, or none."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.gpu.request import GPURequest
from dovetail.pods.containers import Part, Parts
from dovetail.pods.injection import completed
from tests.visibility import SAFE, VARIABLE, Manifest, containers_of, sights

PLUGIN = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb")
RESOURCES = (
    *PLUGIN, "nvidia.com/anything", "nvidia.com/hostdev", "nvidia.com/gpu.shared", "amd.com/gpu", "huawei.com/npu",
    "nvidia.com", "x.nvidia.com/gpu", "cpu", *names.MANAGED_RESOURCES,
)  # fmt: skip
AMOUNTS = ("0", "1", 0, 1, "0k", "0.0", "-0", "1k", "2", "-1", "0e3", "x", "")
FIELDS = ("metadata.annotations['mine']", "metadata.annotations['dovetail.dev/visible-devices.7']", "spec.nodeName")

variables = st.one_of(
    st.fixed_dictionaries(
        {"name": st.sampled_from((VARIABLE, *names.ENV_OTHER_VISIBLE_DEVICES, "X", f"{VARIABLE}_")),
         "value": st.sampled_from(("all", "void", "", "none", "GPU-1", "$(X)", "nvidia.com/gpu=all", "void,all"))},
    ),
    st.fixed_dictionaries(
        {"name": st.just(VARIABLE),
         "valueFrom": st.sampled_from(FIELDS).map(lambda path: {"fieldRef": {"fieldPath": path}})},
    ),
    st.just({"name": VARIABLE}),
    st.just({"name": VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}),
)  # fmt: skip
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(AMOUNTS), max_size=3)


@st.composite
def containers(draw: st.DrawFn, kind: str) -> Manifest:
    made: Manifest = {"name": draw(st.uuids()).hex, "env": draw(st.lists(variables, max_size=4))}
    if kind != "ephemeralContainers":
        made["resources"] = {"limits": draw(amounts), "requests": draw(amounts)}
    if kind == "initContainers" and draw(st.booleans()):
        made["restartPolicy"] = "Always"
    return {field: value for field, value in made.items() if value or draw(st.booleans())}


@st.composite
def specs(draw: st.DrawFn) -> Manifest:
    return {
        kind: draw(st.lists(containers(kind), min_size=int(kind == "containers"), max_size=3))
        for kind in ("containers", "initContainers", "ephemeralContainers")
    }


@st.composite
def asked_of(draw: st.DrawFn, spec: Manifest) -> Parts:
    index = draw(st.integers(0, len(spec["containers"]) + len(spec["initContainers"]) - 1))
    part = Part(index=index, container="", request=GPURequest(share_milli=500))
    return draw(st.sampled_from((Parts(), Parts(mode="Fractional", parts=(part,)))))


@given(data=st.data(), spec=specs())
def test_no_container_sees_what_it_was_not_given(data: st.DataObject, spec: Manifest) -> None:
    done = completed(spec, asked=data.draw(asked_of(spec)), by_plugin=DEFAULT_VENDORS.nvidia_resources)
    seen = sights(done, nvidia=True, advertised=PLUGIN)
    assert set(seen.values()) <= SAFE


@given(spec=specs())
def test_no_variable_of_another_vendor_grants_devices(spec: Manifest) -> None:
    done = completed(spec, asked=Parts())
    said = {entry["name"] for each in containers_of(done) for entry in each.get("env") or ()}
    assert not said & set(names.ENV_OTHER_VISIBLE_DEVICES)


@given(data=st.data(), spec=specs())
def test_completing_twice_changes_nothing(data: st.DataObject, spec: Manifest) -> None:
    asked = data.draw(asked_of(spec))
    once = completed(spec, asked=asked)
    assert completed(once, asked=asked) == once


def one(limits: dict[str, Any], *, vendors: Vendors = DEFAULT_VENDORS) -> list[Manifest]:
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    env: list[Manifest] = completed(spec, asked=Parts(), by_plugin=vendors.nvidia_resources)["containers"][0].get(
        "env", []
    )
    return env


def test_a_plugin_that_sets_no_variable_of_nvidias_leaves_the_container_closed() -> None:
    void = [{"name": VARIABLE, "value": "void"}]
    assert one({"amd.com/gpu": "1"}) == one({"nvidia.com/hostdev": "1"}) == one({"nvidia.com/gpu": "0"}) == void


def test_a_configured_resource_and_mig_devices_are_the_plugins() -> None:
    vendors = Vendors(by_name={"shared": "nvidia.com/gpu.shared", "site": "gpu.example.org/card"})
    assert (
        one({"nvidia.com/gpu.shared": "1"}, vendors=vendors) == one({"gpu.example.org/card": 1}, vendors=vendors) == []
    )
    assert one({"nvidia.com/mig-1g.5gb": "1"}) == []
