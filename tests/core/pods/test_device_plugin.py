from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.request import GPURequest, RequestError
from dovetail.pods.demand import ask_of_job, ask_of_pod, resources_of
from dovetail.pods.device_plugin import refuse_no_devices, vendor_devices
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
    ask = ask_of_pod(make_pod(container(amount=2)), default_policy="Pack")
    assert ask is not None
    assert (ask.gpu, ask.resource, ask.mode, ask.policy) == (GPURequest(count=2), GPU, "Exclusive", "Pack")
    assert ask.cpu_milli == 2000
    assert resources_of(ask) == {GPU: "2"}


def test_the_annotation_adds_a_model() -> None:
    pod = make_pod(container(amount=2), annotations={names.REQUEST: "2(nvidia,V100)", names.POLICY: "Spread"})
    ask = ask_of_pod(pod, default_policy="Pack")
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
    assert ask_of_pod(make_pod(container("nvidia.com/mig-1g.10gb")), default_policy="Pack") is None


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
        ask_of_pod(pod, default_policy="Pack")


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
        ask_of_job(job, default_policy="Pack")
