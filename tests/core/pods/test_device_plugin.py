from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.engine.model.ranking import Ranking
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, NodeKind, Vendors
from dovetail.gpu.request import GPURequest, RequestError
from dovetail.pods.containers import parts_of
from dovetail.pods.demand import ask_of_job, ask_of_pod, resources_of
from dovetail.pods.device_plugin import mig_devices, plugin_for, refuse_no_devices, vendor_devices, with_devices
from tests.operator_.builders import make_job

GPU = "nvidia.com/gpu"


def container(resource: str = GPU, amount: object = 1, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {resource: amount, "cpu": "2"}}, **more}


def make_pod(
    *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), annotations: dict[str, str] | None = None
) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return msgspec.convert({"metadata": {"name": "p", "annotations": annotations or {}}, "spec": spec}, Pod)


def test_a_vendor_s_resource_asks_for_that_many_whole_devices() -> None:
    ask = ask_of_pod(make_pod(container(amount=2)), ranking=Ranking(policy="Pack"))
    assert ask is not None
    assert (ask.gpu, ask.resource, ask.mode, ask.policy) == (GPURequest(count=2), GPU, "Exclusive", "Pack")
    assert ask.cpu_milli == 2000
    assert resources_of(ask) == {GPU: "2"}


def test_the_annotation_adds_a_model() -> None:
    pod = make_pod(container(amount=2), annotations={names.REQUEST: "2(nvidia,V100)", names.POLICY: "Spread"})
    ask = ask_of_pod(pod, ranking=Ranking(policy="Pack"))
    assert ask is not None
    assert ask.gpu == GPURequest(count=2, models=("V100",), vendor="nvidia")
    assert ask.policy == "Spread"


@pytest.mark.parametrize(
    ("pod", "count"),
    [
        (make_pod(container(amount=1), container(amount=2)), 3),
        (make_pod(container(amount=1), init=(container(amount=4),)), 4),
        (make_pod(container(amount=1), init=(container(amount=2, restartPolicy="Always"),)), 3),
        (make_pod(container(amount="0")), 0),
    ],
    ids=["containers run together", "an init container runs before", "a sidecar stays", "none"],
)
def test_devices_are_counted_as_kubelet_counts_them(pod: Pod, count: int) -> None:
    assert vendor_devices(pod.spec, vendors=DEFAULT_VENDORS) == ({GPU: count} if count else {})


def test_mig_devices_are_not_counted_here() -> None:
    assert ask_of_pod(make_pod(container("nvidia.com/mig-1g.10gb")), ranking=Ranking(policy="Pack")) is None


def test_an_amount_beyond_every_machine_overflows_no_column() -> None:
    assert vendor_devices(make_pod(container(amount="1E")).spec, vendors=DEFAULT_VENDORS)[GPU] == 1 << 20


@pytest.mark.parametrize(
    ("pod", "problem"),
    [
        (
            make_pod(container(amount=2), annotations={names.REQUEST: "1(V100)"}),
            r'"1\(V100\)": the pod\'s containers ask nvidia.com/gpu: 2; write for example 2\(V100\)',
        ),
        (
            make_pod(container(), annotations={names.REQUEST: "1(amd,MI300X)"}),
            "the pod's containers ask nvidia.com/gpu, which is not amd's",
        ),
        (make_pod(container(), annotations={names.REQUEST: "0.5"}), "no shares, turns or cuda:N"),
        (make_pod(container(), annotations={names.REQUEST: "1@cuda:0"}), "no shares, turns or cuda:N"),
        (make_pod(container(), annotations={names.MODE: "TimeShared"}), "no shares, turns or cuda:N"),
        (
            make_pod(container(), container("amd.com/gpu")),
            '"nvidia.com/gpu and amd.com/gpu": a pod\'s GPUs are of one kind',
        ),
        (
            make_pod(container(), container(names.GPU_MILLI, 1000)),
            f'"nvidia.com/gpu and {names.GPU_MILLI}": a pod\'s GPUs are of one kind',
        ),
    ],
    ids=["count", "vendor", "share", "index", "turns", "two vendors", "both kinds of node"],
)
def test_what_a_vendor_s_plugin_has_not_is_refused_in_one_sentence(pod: Pod, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        ask_of_pod(pod, ranking=Ranking(policy="Pack"))


@pytest.mark.parametrize("resource", [GPU, "amd.com/gpu", "nvidia.com/anything", "nvidia.com/mig-1g.5gb"])
@pytest.mark.parametrize("amount", ["0", 0, "0k", "0.0", "-0"])
def test_an_amount_of_0_of_a_vendor_s_device_is_refused_with_its_container(resource: str, amount: object) -> None:
    spec = make_pod(container(amount=1), init=(container(resource, amount, name="side"),)).spec
    with pytest.raises(RequestError, match=f'container "side": it asks {resource}: {amount}, which gives it no device'):
        refuse_no_devices(spec, vendors=DEFAULT_VENDORS)


def test_other_resources_may_be_asked_with_0_and_a_vendor_s_above_0() -> None:
    more = {names.GPU_MILLI: "0", "example.org/dongle": "0", "nvidia.com/hostdev": "1"}
    refuse_no_devices(make_pod(container(), {"resources": {"limits": more}}).spec, vendors=DEFAULT_VENDORS)


def test_a_mig_device_in_a_gpujob_s_template_is_the_job_s_to_say() -> None:
    side = container("nvidia.com/mig-1g.5gb", name="side")
    job = make_job("x", template={"spec": {"containers": [{"name": "main", "image": "x"}, side]}})
    with pytest.raises(RequestError, match=r'"nvidia.com/mig-1g.5gb": spec.gpu says how many GPUs a worker gets'):
        ask_of_job(job, ranking=Ranking(policy="Pack"))


def by_plugin(pod: Pod, *, first: NodeKind = "VendorServed") -> str:
    return plugin_for(pod, asked=parts_of(pod), vendors=Vendors(first=first))


def said(*texts: str, containers: int = 1, **limits: str) -> Pod:
    """A pod that says `gpu` in its annotation and `gpu.x` in those of containers."""
    names_of = [f"c{at}" for at in range(containers)]
    annotations = {f"{names.GROUP}/{key}": text for key, _, text in (text.partition("=") for text in texts)}
    return make_pod(
        *({"name": name, "resources": {"limits": limits}} for name in names_of),
        init=({"name": "warm"}, {"name": "side", "restartPolicy": "Always"}),
        annotations=annotations,
    )


@pytest.mark.parametrize(
    ("pod", "resource"),
    [
        pytest.param(said("gpu=2"), GPU, id="whole devices"),
        pytest.param(said("gpu=2(amd,MI300X)"), "amd.com/gpu", id="another vendor's"),
        pytest.param(said("gpu=0.5"), "", id="a share"),
        pytest.param(said("gpu=1", "gpu-mode=TimeShared"), "", id="turns"),
        pytest.param(said("gpu.c0=1"), "", id="a container's own annotation"),
        pytest.param(said("gpu=1", "gpu.c1=1", containers=2), "", id="two containers"),
        pytest.param(said("gpu=1", "gpu.warm=1"), "", id="an init container uses its devices"),
        pytest.param(said("gpu=1", **{names.GPU_MILLI: "1000"}), "", id="it asks managed devices itself"),
        pytest.param(said(), "", id="nothing said"),
    ],
)
def test_a_pod_that_says_only_how_many_gpus_asks_a_plugin_for_them(pod: Pod, resource: str) -> None:
    assert by_plugin(pod) == resource
    if resource != "amd.com/gpu":
        assert by_plugin(pod, first="Managed") == ""


def test_one_container_of_two_that_asks_managed_devices_itself_speaks_for_the_pod() -> None:
    asking = {"name": "c1", "resources": {"limits": {names.GPU_MILLI: "1000"}}}
    assert by_plugin(make_pod({"name": "c0"}, asking, annotations={names.REQUEST: "1"})) == ""


@pytest.mark.parametrize("said", [{}, {"resources": None}, {"resources": {"limits": None}}])
def test_devices_are_asked_in_requests_and_limits(said: dict[str, Any]) -> None:
    found = with_devices({"name": "c", **said}, amounts={GPU: "2"})
    assert found["resources"] == {"requests": {GPU: "2"}, "limits": {GPU: "2"}}
    assert found["name"] == "c"


def test_asking_a_plugin_leaves_what_else_a_container_asks_and_takes_what_only_managed_nodes_have() -> None:
    resources = {"requests": {"cpu": "1", names.GPU_MILLI: "1000"}, "limits": {"cpu": "2", GPU: "7"}, "claims": []}
    env = [{"name": "A"}, {"name": names.ENV_VISIBLE_DEVICES, "value": "all"}, {"name": "B"}]
    found = with_devices({"resources": resources, "env": env}, amounts={GPU: "1"})
    assert found["resources"] == {
        "requests": {"cpu": "1", GPU: "1"},
        "limits": {"cpu": "2", GPU: "1"},
        "claims": [],
    }
    assert [entry["name"] for entry in found["env"]] == ["A", "B"]
    assert resources["limits"] == {"cpu": "2", GPU: "7"}, "what was given is left as it was"


def test_the_sentence_about_a_share_names_whole_devices_of_the_same_model() -> None:
    pod = make_pod(container(amount=2), annotations={names.REQUEST: "2x0.5(V100)"})
    with pytest.raises(RequestError, match=r"write for example 2\(V100\)$"):
        ask_of_pod(pod, ranking=Ranking(policy="Pack"))


def test_the_sentence_about_two_kinds_names_the_first_alone() -> None:
    with pytest.raises(RequestError, match=r"write for example nvidia\.com/gpu: 2 alone$"):
        ask_of_pod(make_pod(container(amount=2), container("amd.com/gpu")), ranking=Ranking(policy="Pack"))


def test_mig_devices_are_counted_by_profile_at_the_pod_s_peak() -> None:
    small, large = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
    spec = make_pod(container(small, 1), container(small, 2), init=(container(large, 3), container(small, 1))).spec
    assert mig_devices(spec) == {small: 3, large: 3}
    assert mig_devices(make_pod(container(small, 0), container(GPU, 1)).spec) == {}
    assert mig_devices(make_pod(container(small, "1Ti")).spec) == {small: 1 << 20}
