"""What quotas count for pods, namespace by namespace, without a process."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.model.refusals import Refusal
from tests.extender.builders import make_pod, make_share
from tests.extender.desk import Desk


def quota(name: str = "q", **spec: Any) -> GPUQuota:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota)


def pod(name: str, namespace: str = "default", *, gpus: int = 1) -> dict[str, Any]:
    made = make_pod(name, str(gpus), milli=1000 * gpus)
    return made | {"metadata": made["metadata"] | {"namespace": namespace}}


class Limited(Desk):
    """The desk with quotas; `uses` binds a pod that the quotas see."""

    def __init__(self, *quotas: GPUQuota) -> None:
        super().__init__(a=8, b=8)
        self.quotas = self.decisions.quotas
        for each in quotas:
            self.quotas.quota_event("ADDED", each)

    def uses(self, made: dict[str, Any]) -> Pod:
        self.bind(made, "a")
        seen = msgspec.convert(made, Pod)
        self.quotas.pod_event("ADDED", seen)
        return seen

    def refusal(self, made: dict[str, Any]) -> str:
        found = self.quotas.refusal(msgspec.convert(made, Pod), ask=self.ask(made))
        return found.message if found is not None else ""


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"users": ["ada"], "limit": {"gpus": 0}}, id="it is about users"),
        pytest.param({"namespaces": ["default"], "limit": {"runningJobs": 0}}, id="it is about jobs"),
        pytest.param({"namespaces": ["default"]}, id="it limits nothing"),
    ],
)
def test_a_quota_binds_no_pod_where(spec: dict[str, Any]) -> None:
    assert Limited(quota(**spec)).quotas.binding == []


@pytest.mark.parametrize(
    "spec",
    [
        {"limit": {"gpus": 0}},
        {"limit": {"memory": "0"}},
        {"limit": {"models": {"V100": 0}}},
        {"pools": ["fast"]},
        {"maxPriority": 0},
    ],
)
def test_a_quota_binds_pods_by_each_of_its_limits(spec: dict[str, Any]) -> None:
    assert Limited(quota(**spec)).quotas.binding == ["q"]


def test_a_quota_that_limits_pods_no_more_is_dropped_and_others_stay() -> None:
    desk = Limited(quota("q", limit={"gpus": 0}), quota("r", limit={"gpus": 8}))
    desk.quotas.quota_event("MODIFIED", quota("q", limit={"runningJobs": 1}))
    assert desk.quotas.binding == ["r"]
    desk.quotas.quota_event("DELETED", quota("r", limit={"gpus": 8}))
    assert (desk.quotas.binding, desk.refusal(pod("p"))) == ([], "")


def test_a_pod_is_no_job_to_a_quota_that_allows_no_job() -> None:
    assert Limited(quota(limit={"gpus": 8, "runningJobs": 0})).refusal(pod("p")) == ""


def test_a_quota_for_each_namespace_counts_each_by_itself() -> None:
    desk = Limited(quota(per="Namespace", limit={"gpus": 2}))
    desk.uses(pod("first", gpus=2))
    assert "may run 2 GPUs, 2 run" in desk.refusal(pod("next"))
    assert desk.refusal(pod("next", "other", gpus=2)) == ""


def test_a_quota_of_several_namespaces_counts_them_together_and_no_other() -> None:
    desk = Limited(quota(namespaces=["default", "second"], limit={"gpus": 4}))
    desk.uses(pod("first", gpus=2))
    desk.uses(pod("other", "elsewhere", gpus=2))
    desk.quotas.job_planned(namespace="second", uid="job", workers=1)
    assert desk.refusal(pod("next", gpus=2)) == ""
    desk.uses(pod("second", "second", gpus=1))
    assert "3 run, this pod needs 2" in desk.refusal(pod("next", gpus=2))
    assert desk.refusal(pod("next", "elsewhere", gpus=4)) == ""


def test_a_pod_s_own_claim_and_a_deleted_pod_do_not_count() -> None:
    desk = Limited(quota(limit={"gpus": 2}))
    own = pod("own", gpus=2)
    seen = desk.uses(own)
    assert desk.refusal(own) == ""
    assert desk.refusal(pod("next")) != ""
    desk.quotas.pod_event("DELETED", seen)
    desk.quotas.pod_event("DELETED", seen)
    assert desk.refusal(pod("next", gpus=2)) == ""


def test_every_planned_worker_counts_until_the_job_has_no_plan() -> None:
    desk = Limited(quota(limit={"gpus": 3}))
    for worker in range(2):
        made = pod("w")
        made["metadata"]["uid"] = f"job/{worker}"
        desk.bind(made, "a")
    desk.quotas.job_planned(namespace="default", uid="job", workers=2)
    assert "2 run, this pod needs 2" in desk.refusal(pod("next", gpus=2))
    desk.quotas.job_planned(namespace="default", uid="job", workers=1)
    assert desk.refusal(pod("next", gpus=2)) == ""
    desk.quotas.job_planned(namespace="default", uid="job", workers=0)
    desk.quotas.job_planned(namespace="default", uid="job", workers=0)
    assert desk.refusal(pod("next", gpus=3)) == ""


def test_devices_that_kubelet_has_not_named_yet_count_as_whole_ones() -> None:
    desk = Limited(quota(limit={"gpus": 4}))
    desk.uses(pod("first"))
    claim = desk.ledger.claim("uid-first")
    assert claim is not None
    desk.ledger.commit(replace(claim, devices=(), unnamed=3, resource="nvidia.com/gpu"))
    assert "3 run, this pod needs 2" in desk.refusal(pod("next", gpus=2))
    assert desk.refusal(pod("next")) == ""


def test_the_first_exceeded_quota_refuses() -> None:
    desk = Limited(quota("wide", limit={"gpus": 8}), quota("tight", limit={"gpus": 0}))
    assert desk.refusal(pod("p")).startswith("GPUQuota tight: ")


def test_pools_that_exclude_each_other_refuse_with_a_sentence_and_sort_out_no_node() -> None:
    desk = Limited(quota("q", pools=["fast"]), quota("r", pools=["slow"]))
    made = make_share()
    assert "fast" in desk.refusal(made)
    assert desk.quotas.allowed(msgspec.convert(made, Pod), nodes=["a", "b"]) == (["a", "b"], {})


def test_nodes_outside_the_pools_of_a_namespace_are_refused_one_by_one() -> None:
    desk = Limited(quota(namespaces=["default"], pools=["fast", "slow"]))
    inside, outside = desk.quotas.allowed(msgspec.convert(pod("p"), Pod), nodes=["a", "unknown"])
    text = "not in pool fast or slow, to which a GPUQuota keeps namespace default"
    refusal = Refusal(kind="Quota", message=text, text=text)
    assert (inside, outside) == ([], {"a": refusal, "unknown": refusal})
    assert desk.quotas.allowed(msgspec.convert(pod("p", "other"), Pod), nodes=["a"]) == (["a"], {})


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        pytest.param({"memory": "64Gi"}, "may use 64 GiB of device memory, 64 GiB are in use", id="memory"),
        pytest.param({"models": {"V100": 2}}, "may run 2 GPUs of model V100, 2 run", id="a model"),
    ],
)
def test_pods_count_by_the_gpus_that_they_hold(limit: dict[str, Any], message: str) -> None:
    desk = Limited(quota(namespaces=["default"], limit=limit))
    asks = pod("next")
    asks["metadata"]["annotations"]["dovetail.dev/gpu"] = "1(V100)"
    assert desk.refusal(asks) == ""
    desk.uses(pod("first", gpus=2))
    assert message in desk.refusal(asks)
