from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.api.builtin import PodSpec
from dovetail.api.gpujob import MemoryUse, ResourceRequest
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import DEFAULT_RANKING, Ranking
from dovetail.gpu.request import GPURequest, RequestError
from dovetail.pods.demand import (
    ask_of_job,
    ask_of_pod,
    estimated,
    host_request,
    request_of_resources,
    resources_of,
    template_spec,
)
from tests.core.builders import make_job, make_pod
from tests.core.engine.builders import make_ask
from tests.operator_.builders import make_job as operator_job


@pytest.mark.parametrize(
    ("resources", "annotations", "request_", "mode"),
    [
        ({names.GPU_MILLI: "2000"}, {}, GPURequest(count=2), "Exclusive"),
        ({names.GPU_MILLI: "2k"}, {}, GPURequest(count=2), "Exclusive"),
        ({names.GPU_MILLI: "500"}, {}, GPURequest(share_milli=500), "Fractional"),
        (
            {names.GPU_MILLI: "500", names.GPU_MEMORY_MIB: "8192"},
            {},
            GPURequest(share_milli=500, memory_mib=8192),
            "Fractional",
        ),
        ({names.GPU_MILLI: "2000"}, {names.REQUEST: "2(V100)"}, GPURequest(count=2, models=("V100",)), "Exclusive"),
        (
            {names.GPU_TURN: "1"},
            {names.REQUEST: "0.5", names.MODE: "TimeShared"},
            GPURequest(share_milli=500),
            "TimeShared",
        ),
    ],
)
def test_a_pod_asks_what_its_resources_and_annotations_say(
    resources: dict[str, str], annotations: dict[str, str], request_: GPURequest, mode: str
) -> None:
    ask = ask_of_pod(make_pod(resources, annotations=annotations), ranking=Ranking(policy="Pack"))
    assert ask is not None
    assert (ask.gpu, ask.mode, ask.policy) == (request_, mode, "Pack")


@pytest.mark.parametrize("policy", ["Spread", "SPREAD", "spread"])
def test_the_policy_is_the_same_in_capitals(policy: str) -> None:
    pod = make_pod({names.GPU_MILLI: "500"}, annotations={names.REQUEST: "0.5", names.POLICY: policy})
    ask = ask_of_pod(pod, ranking=Ranking(policy="Pack"))
    assert ask is not None
    assert ask.policy == "Spread"


def test_a_pod_without_our_resources_is_not_ours() -> None:
    assert ask_of_pod(make_pod({"cpu": "1"}), ranking=Ranking(policy="Pack")) is None


def test_an_amount_of_zero_asks_for_a_place_without_devices() -> None:
    ask = ask_of_pod(make_pod({"cpu": "1", names.GPU_MILLI: "0"}), ranking=Ranking(policy="Pack"))
    assert ask == Ask(gpu=None, policy="Pack", cpu_milli=1000)


def test_an_amount_of_zero_beside_a_request_is_refused() -> None:
    with pytest.raises(RequestError):
        ask_of_pod(make_pod({names.GPU_MILLI: "0"}, annotations={names.REQUEST: "1"}), ranking=Ranking(policy="Pack"))


@pytest.mark.parametrize(
    ("resources", "annotations", "sentence"),
    [
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "2"},
            (
                'gpu "2": the pod\'s resources are dovetail.dev/gpu-milli: 500, but the request needs '
                "dovetail.dev/gpu-milli: 2000; write for example dovetail.dev/gpu-milli: 2000"
            ),
        ),
        (
            {names.GPU_MILLI: "1500"},
            {},
            (
                'gpu "1500": dovetail.dev/gpu-milli above 1000 must be a multiple of 1000 without the annotation '
                "dovetail.dev/gpu; write for example 2000"
            ),
        ),
        (
            {names.GPU_MEMORY_MIB: "1024"},
            {},
            (
                'gpu "1024": dovetail.dev/gpu-memory-mib needs dovetail.dev/gpu-milli or dovetail.dev/gpu-turn too; '
                "write for example 500"
            ),
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.MODE: "Shared"},
            'mode "Shared": unknown mode; write for example Exclusive, Fractional, TimeShared',
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.MODE: "Exclusive"},
            'gpu "0.5": mode Exclusive takes whole GPUs, not a share; write for example Fractional',
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.POLICY: "Best"},
            'policy "Best": unknown policy; write for example Spread, Pack, Balanced',
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.MEMORY_STRATEGY: "Bold"},
            (
                'memory strategy "Bold": allowed are Conservative, Aggressive, Dynamic or a fraction from 0.05 to 1, '
                "such as 0.7; write for example Aggressive or 0.7"
            ),
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.MEMORY_STRATEGY: "0.04"},
            (
                'memory strategy "0.04": allowed are Conservative, Aggressive, Dynamic or a fraction from 0.05 to 1, '
                "such as 0.7; write for example Aggressive or 0.7"
            ),
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.WORKLOAD: "Batch"},
            'workload "Batch": unknown workload; write for example Training, Inference',
        ),
        (
            {names.GPU_MILLI: "500"},
            {names.REQUEST: "0.5", names.PRIORITY: "256"},
            'priority "256": must be a whole number from 0 to 255; write for example 20',
        ),
    ],
)
def test_a_pod_that_contradicts_itself_gets_a_sentence(
    resources: dict[str, str], annotations: dict[str, str], sentence: str
) -> None:
    with pytest.raises(RequestError) as caught:
        ask_of_pod(make_pod(resources, annotations=annotations), ranking=Ranking(policy="Pack"))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("spec", "request_", "mode"),
    [
        ({"gpu": 2}, GPURequest(count=2), "Exclusive"),
        ({"gpu": "8G,0.5"}, GPURequest(share_milli=500, memory_mib=8192), "Fractional"),
        (
            {"resources": {"count": 2, "share": 0.25, "memory": "8Gi", "models": ["T4"], "vendor": "nvidia"}},
            GPURequest(count=2, share_milli=250, memory_mib=8192, models=("T4",), vendor="nvidia"),
            "Fractional",
        ),
        ({"resources": {"device": "cuda:1"}}, GPURequest(device_index=1), "Exclusive"),
        (
            {"resources": {"device": "a/cuda:1", "share": 0.5}},
            GPURequest(share_milli=500, device_index=1, device_node="a"),
            "Fractional",
        ),
        ({"resources": {"device": "cpu"}}, None, "Exclusive"),
        ({"gpu": "0.5", "mode": "TimeShared"}, GPURequest(share_milli=500), "TimeShared"),
    ],
)
def test_a_job_asks_the_same_in_either_form(spec: dict[str, Any], request_: GPURequest | None, mode: str) -> None:
    ask = ask_of_job(make_job(**spec), ranking=DEFAULT_RANKING)
    assert (ask.gpu, ask.mode) == (request_, mode)


@pytest.mark.parametrize("share", [0.9996, 0.0001, 0.3333333, 1.001, -0.5, 0.0])
def test_a_share_is_never_rounded_to_another(share: float) -> None:
    with pytest.raises(RequestError, match=r"resources\.share .* at most three decimals"):
        request_of_resources(ResourceRequest(share=share))


@given(st.integers(1, 1000))
def test_every_share_of_thousandths_is_read(share_milli: int) -> None:
    found = request_of_resources(ResourceRequest(share=share_milli / 1000))
    assert found is not None
    assert found.share_milli == share_milli


@pytest.mark.parametrize("text", ["-1", "256", "9" * 5000, "٣", ""])
def test_a_priority_that_is_none_gets_a_sentence(text: str) -> None:
    pod = make_pod({names.GPU_MILLI: "500"}, annotations={names.PRIORITY: text})
    with pytest.raises(RequestError, match="must be a whole number from 0 to 255"):
        ask_of_pod(pod, ranking=Ranking(policy="Pack"))


@pytest.mark.parametrize(
    ("strategy", "fraction"),
    [(None, None), ("Conservative", 0.8), ("Aggressive", 0.95), ("Dynamic", 0.8), ("0.7", 0.7), ("1", 1.0)],
)
def test_a_strategy_is_a_fraction_and_dynamic_begins_as_conservative(strategy: Any, fraction: Any) -> None:
    said = {} if strategy is None else {names.MEMORY_STRATEGY: strategy}
    of_pod = ask_of_pod(make_pod({names.GPU_MILLI: "500"}, annotations=said), ranking=Ranking(policy="Pack"))
    of_job = ask_of_job(make_job(gpu="0.5", memory={"strategy": strategy}), ranking=Ranking(policy="Pack"))
    assert of_pod is not None
    assert (of_pod.guard_fraction, of_job.guard_fraction) == (fraction, fraction)


def test_a_pod_and_a_job_say_their_workload() -> None:
    pod = make_pod({names.GPU_MILLI: "500"}, annotations={names.WORKLOAD: "Inference"})
    of_pod = ask_of_pod(pod, ranking=Ranking(policy="Pack"))
    assert of_pod is not None
    assert of_pod.workload == "Inference"
    assert ask_of_job(make_job(gpu="0.5", workload="Training"), ranking=Ranking(policy="Pack")).workload == "Training"
    assert ask_of_job(make_job(gpu="0.5"), ranking=Ranking(policy="Pack")).workload is None


@pytest.mark.parametrize("resource", ["cpu", "memory", "nvidia.com/gpu"])
def test_a_quantity_that_is_none_is_named(resource: str) -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {resource: "two"}}}]}}
    told = f'requests\\.{resource} of container c "two": is no quantity; write for example 500m'
    with pytest.raises(RequestError, match=told):
        ask_of_job(make_job(gpu=1, template=template), ranking=DEFAULT_RANKING)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_negative_amount_is_refused_before_it_lowers_what_the_pod_takes(resource: str, kind: str) -> None:
    odd = {"name": "odd", "resources": {"requests": {resource: "-5"}}}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8", "memory": "9Gi"}}}]}}
    template["spec"][kind] = [*template["spec"].get(kind, ()), odd]
    with pytest.raises(RequestError, match=rf'requests\.{resource} of container odd "-5": must be 0 or more'):
        ask_of_job(make_job(gpu=1, template=template), ranking=DEFAULT_RANKING)


def test_what_is_null_in_a_template_counts_as_absent() -> None:
    template = {
        "spec": {
            "initContainers": None,
            "containers": [{"name": "c", "env": None, "resources": {"requests": None, "limits": {"cpu": "2"}}}],
        }
    }
    job = make_job(gpu=1, template=template)
    assert ask_of_job(job, ranking=DEFAULT_RANKING).cpu_milli == 2000
    assert template_spec(job) == {
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }


@pytest.mark.parametrize(
    ("gpu", "keys"),
    [
        (1, ["nvidia.com/gpu"]),
        ("8G,0.5", ["nvidia.com/gpu"]),
        ("1g.10gb", ["nvidia.com/gpu"]),
        ("1(amd)", ["amd.com/gpu"]),
        ("2(V100)", ["nvidia.com/gpu"]),
    ],
)
def test_the_pods_of_a_job_tolerate_the_taint_of_nodes_that_can_meet_it(gpu: int | str, keys: list[str]) -> None:
    assert [each["key"] for each in template_spec(make_job(gpu=gpu))["tolerations"]] == keys


def test_a_job_on_the_cpu_tolerates_no_taint_of_gpu_nodes() -> None:
    assert "tolerations" not in template_spec(make_job(resources={"device": "cpu"}))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"containers": "none"},
            ".containers must be a list and is a text; write for example [a, b]",
        ),
        (
            {"containers": [{"name": "c", "env": [{"name": "E", "value": 5}]}]},
            '.containers[0].env[0].value must be a text and is a whole number; write for example "1" in quotes',
        ),
        (
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": {}}}}]},
            ".containers[0].resources.limits[...] must be a number or a text and is an object; write for example 1.5",
        ),
        (
            {"containers": [{"name": "c", "volumeMounts": ["data"]}]},
            ".containers[0].volumeMounts[0] must be an object and is a text; write for example {name: value}",
        ),
        (
            {"containers": [{"name": "c", "args": [["x"]]}]},
            '.containers[0].args[0] must be a text and is a list; write for example "1" in quotes',
        ),
        (
            {"containers": [{"name": "c"}], "volumes": True},
            ".volumes must be a list and is true or false; write for example [a, b]",
        ),
        (
            {"containers": [{"name": "c"}], "terminationGracePeriodSeconds": "soon"},
            ".terminationGracePeriodSeconds must be a whole number and is a text; write for example 1",
        ),
    ],
)
def test_a_template_that_is_no_pod_is_a_sentence_that_names_the_field(spec: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError) as refused:
        ask_of_job(make_job(gpu=1, template={"spec": spec}), ranking=DEFAULT_RANKING)
    assert str(refused.value) == f'job "j": spec.template.spec{told}'


@pytest.mark.parametrize(
    ("ask", "resources"),
    [
        (Ask(gpu=None), {}),
        (make_ask("2"), {names.GPU_MILLI: "2000"}),
        (make_ask("2x8G,0.5"), {names.GPU_MILLI: "1000", names.GPU_MEMORY_MIB: "16384"}),
        (make_ask("0.5", mode="TimeShared"), {names.GPU_TURN: "1"}),
    ],
)
def test_an_ask_becomes_the_resources_that_kube_scheduler_counts(ask: Ask, resources: dict[str, str]) -> None:
    assert resources_of(ask) == resources


def test_sidecars_stay_and_init_containers_run_one_by_one() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}} | more

    spec = msgspec.convert(
        {
            "initContainers": [container("1", restartPolicy="Always"), container("5")],
            "containers": [container("2"), container("1")],
        },
        PodSpec,
    )
    assert host_request(spec) == (6000, 0)


@pytest.mark.parametrize(
    ("said", "told", "example"),
    [
        (
            {"nodeName": "gpu-7"},
            'nodeName "gpu-7": the queue decides where a job\'s pods go',
            'nodeSelector: {kubernetes.io/hostname: "gpu-7"}',
        ),
        (
            {"schedulingGates": [{"name": "x"}]},
            "schedulingGates \"[{'name': 'x'}]\": the queue decides when a job's pods go",
            "suspend: true",
        ),
    ],
)
def test_a_template_that_says_where_or_when_its_pods_go_is_refused(
    said: dict[str, Any], told: str, example: str
) -> None:
    with pytest.raises(RequestError) as refused:
        ask_of_job(make_job(gpu=1, template={"spec": {"containers": [], **said}}), ranking=DEFAULT_RANKING)
    assert str(refused.value) == f"spec.template.spec.{told}; write for example {example}"


def test_a_field_that_is_empty_says_nothing() -> None:
    job = make_job(gpu=1, template={"spec": {"containers": [], "nodeName": "", "schedulingGates": []}})
    assert ask_of_job(job, ranking=DEFAULT_RANKING).gpu is not None


@pytest.mark.parametrize(
    ("gpu", "estimate", "promised"),
    [("0.5", 5500, 5500), ("8G,0.5", 5500, 5500), ("4G,0.5", 5500, 4096), ("0.5", None, None), ("1", 5500, None)],
)
def test_an_estimate_is_what_a_share_is_promised_and_never_more_than_it_asked(
    gpu: str, estimate: int | None, promised: int | None
) -> None:
    ask = make_ask(gpu)
    found = estimated(ask, use=MemoryUse(strategy="Dynamic", basis="", estimate_mib=estimate))
    assert found.gpu is not None
    assert found.gpu.memory_mib == promised
    assert found.guard_fraction == (0.95 if promised else ask.guard_fraction)
    assert estimated(ask, use=None) is ask


def test_a_job_s_container_that_asks_for_no_device_of_a_plugin_is_refused() -> None:
    template = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 0}}}]}
    job = operator_job(template={"spec": template})
    with pytest.raises(RequestError, match="which gives it no device"):
        ask_of_job(job, ranking=Ranking(policy="Pack"))
