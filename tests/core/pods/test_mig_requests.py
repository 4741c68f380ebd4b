"""MIG instances in pods and GPUJobs: what they request, and what contradicts itself."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpujob import ResourceRequest
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.gpu.request import GPURequest, RequestError
from dovetail.pods.demand import ask_of_pod, request_of_resources, resources_of
from tests.core.builders import make_pod

SMALL = "nvidia.com/mig-1g.10gb"
OURS = {names.GPU_MILLI: "0"}


def ask_of(resources: dict[str, Any], *, request: str | None = None) -> Ask | None:
    annotations = {} if request is None else {names.REQUEST: request}
    return ask_of_pod(make_pod(resources, annotations=annotations), ranking=DEFAULT_RANKING)


def test_on_a_managed_node_each_instance_counts_as_a_device() -> None:
    assert resources_of(Ask(gpu=GPURequest(count=2, mig="3g.40gb"))) == {names.GPU_MILLI: "2000"}
    found = ask_of({names.GPU_MILLI: "2000"}, request="2x3g.40gb")
    assert found is not None
    assert (found.gpu, found.mode, found.resource) == (GPURequest(count=2, mig="3g.40gb"), "Exclusive", "")


@pytest.mark.parametrize("request_", [None, "2x1g.10gb", "2x1g.10gb(H100)"])
def test_on_a_vendor_s_node_the_plugin_s_resource_counts(request_: str | None) -> None:
    wanted = resources_of(Ask(gpu=GPURequest(count=2, mig="1g.10gb"), resource=SMALL))
    assert wanted == {SMALL: "2"} | OURS
    found = ask_of(wanted, request=request_)
    assert found is not None
    assert found.gpu is not None
    assert (found.gpu.count, found.profile, found.resource) == (2, "1g.10gb", SMALL)


def test_a_pod_of_the_plugin_s_resource_alone_is_kube_scheduler_s() -> None:
    assert ask_of({SMALL: "1"}) is None


@pytest.mark.parametrize(
    ("resources", "request_", "problem"),
    [
        ({SMALL: "2"} | OURS, "1g.10gb", f"the pod's containers ask {SMALL}: 2"),
        ({SMALL: "1"} | OURS, "3g.40gb", f"the pod's containers ask {SMALL}: 1"),
        ({SMALL: "1", "nvidia.com/mig-3g.40gb": "1"} | OURS, None, "a pod's GPUs are of one kind"),
        ({SMALL: "1", names.GPU_MILLI: "1000"}, None, "a pod's GPUs are of one kind"),
    ],
)
def test_a_pod_that_contradicts_itself_is_refused(
    resources: dict[str, str], request_: str | None, problem: str
) -> None:
    with pytest.raises(RequestError, match=problem):
        ask_of(resources, request=request_)


def test_a_mode_that_shares_goes_with_no_profile() -> None:
    pod = make_pod({names.GPU_MILLI: "1000"}, annotations={names.REQUEST: "1g.10gb", names.MODE: "TimeShared"})
    with pytest.raises(RequestError, match="a MIG instance has one tenant at a time"):
        ask_of_pod(pod, ranking=DEFAULT_RANKING)


def test_the_fields_mean_what_the_text_does() -> None:
    fields = ResourceRequest(count=2, models=["H100"], mig_profile="3g.40gb")
    assert str(request_of_resources(fields)) == "2x3g.40gb(H100)"


@pytest.mark.parametrize("more", [{"share": 0.5}, {"memory": "8Gi"}, {"device": "cpu"}, {"vendor": "nvidia"}])
def test_a_profile_goes_with_count_and_models_alone(more: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r'resources.migProfile "3g.40gb": a MIG profile goes with count and models'):
        request_of_resources(ResourceRequest(mig_profile="3g.40gb", **more))
