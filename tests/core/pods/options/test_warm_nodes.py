"""The warm nodes that a pod or the template of a job names."""

import pytest

from dovetail import names
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import ask_of_job, ask_of_pod
from dovetail.pods.options.annotations import MAX_WARM_NODES, warm_in
from tests.core.builders import make_job, make_pod


def test_a_pod_and_a_job_name_warm_nodes() -> None:
    said = {names.WARM_NODES: "gpu-2, gpu-1,gpu-2"}
    of_pod = ask_of_pod(make_pod({names.GPU_MILLI: "500"}, annotations=said), ranking=DEFAULT_RANKING)
    vendors = ask_of_pod(make_pod({"nvidia.com/gpu": "1"}, annotations=said), ranking=DEFAULT_RANKING)
    template = {"metadata": {"annotations": said}, "spec": {"containers": [{"name": "main"}]}}
    of_job = ask_of_job(make_job(gpu="0.5", template=template), ranking=DEFAULT_RANKING)
    assert of_pod is not None
    assert vendors is not None
    assert of_pod.warm == vendors.warm == of_job.warm == ("gpu-2", "gpu-1")


@pytest.mark.parametrize("text", ["", "  "])
def test_no_name_is_no_wish(text: str) -> None:
    assert warm_in({names.WARM_NODES: text}) == warm_in({}) == ()


@pytest.mark.parametrize(
    "text", ["gpu_1", "-a", "a,,b", "A", "a b", "a" * 300, ",".join(f"n{at}" for at in range(MAX_WARM_NODES + 1))]
)
def test_what_names_no_nodes_is_one_sentence(text: str) -> None:
    with pytest.raises(RequestError, match="names of nodes, at most 16, separated by commas") as raised:
        warm_in({names.WARM_NODES: text})
    assert names.WARM_NODES in str(raised.value)
    assert "gpu-1,gpu-2" in str(raised.value)
