"""`dovetail limits`: the live part of the configuration, read from the release's ConfigMap and changed there."""

import pytest
import yaml
from msgspec import structs

from dovetail.api.conversion import values_of
from dovetail.api.gpunode import TenantLimits
from dovetail_cli import app
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.nodes import limits
from dovetail_cli.ui.errors import MissingError, UsageError
from tests.cli.builders import make_gpunode
from tests.core.kube.api import Answer, Api, refusal
from tests.spec_values import RANKED

CONFIG = "/api/v1/namespaces/dovetail-system/configmaps/dovetail-config"
GPUNODES = "/apis/dovetail.dev/v1beta1/gpunodes"


def config(text: str) -> Answer:
    meta = {"name": "dovetail-config", "namespace": "dovetail-system", "resourceVersion": "7"}
    return Answer(body={"metadata": meta, "data": {"gpu_config.yaml": text}})


def test_words_are_keys_and_values_as_in_yaml() -> None:
    assert limits.parse(["policy=Pack", "preemption.grace=60", "score_weights.cpu=0.5"]) == {
        "policy": "Pack",
        "preemption.grace": 60,
        "score_weights.cpu": 0.5,
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["policy"], '"policy": write KEY=VALUE, such as dovetail limits set training_per_device=2'),
        (["policy="], "write KEY=VALUE"),
        (["policy=["], "its value cannot be read"),
        (["history_days=7"], '"history_days" needs a restart: set config.history_days in the chart'),
        (["polcy=Pack"], '"polcy": unknown key, allowed are policy, namespace_policies'),
    ],
)
def test_a_word_that_changes_nothing_at_once_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        limits.parse(words)
    assert problem in str(refused.value)


def test_a_key_below_another_changes_it_alone_and_a_map_that_is_empty_goes() -> None:
    values = {"policy": "Pack", "preemption": {"grace": 5, "per_job": 1}, "namespace_policies": {"a": "Pack"}}
    wanted = {"preemption.grace": 9, "preemption.per_job": None, "namespace_policies.a": None, "policy": None}
    assert limits.edited(values, wanted=wanted) == {"preemption": {"grace": 9}}
    assert limits.edited({}, wanted={"namespace_policies.b": "Pack"}) == {"namespace_policies": {"b": "Pack"}}
    assert limits.edited({}, wanted={"preemption.grace": None}) == {}
    with pytest.raises(UsageError, match="policy has no keys of its own"):
        limits.edited(values, wanted={"policy.x": 1})


def test_a_value_that_no_program_would_take_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(UsageError, match=r"training_per_device is 99, but must be a whole number from 0 to 48"):
        limits.check({"training_per_device": 99})
    with pytest.raises(UsageError, match="notify_url has a password"):
        limits.check({"notify_url": "smtp://me:secret@mail"})


async def test_the_change_is_written_on_top_of_what_was_read(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {CONFIG}", config("history_days: 7\npolicy: Spread\n"))
    api.answer(f"PATCH {CONFIG}", Answer(body={}))
    said = await limits._change_cluster(cluster, wanted={"policy": "Pack", "preemption.grace": 9})
    assert said == ["policy: Spread -> Pack", "preemption.grace: 30 -> 9"]
    (patch,) = api.of(f"PATCH {CONFIG}")
    assert patch.body["metadata"] == {"resourceVersion": "7"}
    written = yaml.safe_load(patch.body["data"]["gpu_config.yaml"])
    assert written == {"history_days": 7, "policy": "Pack", "preemption": {"grace": 9}}


async def test_nothing_is_written_if_one_value_is_refused_or_nothing_is_installed(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {CONFIG}", config("history_days: 7\n"), refusal(404))
    with pytest.raises(UsageError, match="policy is"):
        await limits._change_cluster(cluster, wanted={"policy": "Best"})
    with pytest.raises(MissingError, match="there is no ConfigMap dovetail-config"):
        await limits._change_cluster(cluster, wanted={"policy": "Pack"})
    assert not api.of(f"PATCH {CONFIG}")


async def test_a_device_gets_limits_of_its_own(api: Api, cluster: Cluster) -> None:
    page = {"metadata": {}, "items": [values_of(make_gpunode("a"))]}
    api.answer(f"GET {GPUNODES}", Answer(body=page))
    api.answer(f"PATCH {GPUNODES}/a", Answer(body=values_of(make_gpunode("a"))))
    wanted = {"training_per_device": 2, "inference_per_device": None}
    said = await limits._change_devices(cluster, words=["a:0"], wanted=wanted)
    assert said == ["a:0 training_per_device: 2", "a:0 inference_per_device: as in the cluster"]
    (patch,) = api.of(f"PATCH {GPUNODES}/a")
    assert patch.body == {"spec": {"tenantLimits": {"GPU-a-0": {"training": 2, "inference": None}}}}


async def test_who_may_not_list_devices_sees_what_counts_in_the_cluster(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answer(f"GET {GPUNODES}", refusal(403))
    assert await limits._gpunodes(cluster) == ()
    assert "devices' own limits are not shown" in capsys.readouterr().err


def test_only_tenant_limits_are_a_devices_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["limits", "set", "--device", "a:0", "policy=Pack"]) == 2
    assert "--device: policy is no limit of a device" in capsys.readouterr().err


def test_the_rows_show_what_counts_and_the_default() -> None:
    rows = {row["KEY"]: row for row in limits._of_cluster(limits.check({"namespace_policies": {"a": "Pack"}}))}
    assert rows["namespace_policies.a"] == {
        "KEY": "namespace_policies.a", "WHERE": "cluster", "VALUE": "Pack", "DEFAULT": None
    }  # fmt: skip
    assert rows["preemption.grace"]["DEFAULT"] == 30
    for key, value in RANKED.items():
        settings = limits.check({key: {"a": value}})
        rows = {row["KEY"]: row for row in limits._of_cluster(settings)}
        assert rows[f"{key}.a"]["VALUE"] == settings.model_dump(exclude_unset=True)[key]["a"]


def test_a_devices_own_limits_are_rows_of_their_own_and_0_is_a_limit() -> None:
    gpunode = make_gpunode("a")
    assert list(limits._of_devices([gpunode])) == []
    own = {"GPU-a-1": TenantLimits(training=0, inference=3), "GPU-gone": TenantLimits(training=1)}
    limited = structs.replace(gpunode, spec=structs.replace(gpunode.spec, tenant_limits=own))
    assert [(row["KEY"], row["WHERE"], row["VALUE"]) for row in limits._of_devices([gpunode, limited])] == [
        ("training_per_device", "a:1", 0),
        ("inference_per_device", "a:1", 3),
        ("training_per_device", "a:GPU-gone", 1),
    ]
    # Without the device before it, one keeps its index.
    left = structs.replace(limited, status=structs.replace(limited.status, devices=limited.status.devices[1:]))
    assert [row["WHERE"] for row in limits._of_devices([left])] == ["a:1", "a:1", "a:GPU-gone"]


async def test_devices_of_several_nodes_are_changed_at_their_own_nodes(api: Api, cluster: Cluster) -> None:
    nodes = [make_gpunode(name) for name in "ab"]
    api.answer("GET /apis/dovetail.dev/v1beta1/gpunodes", Answer(body={"metadata": {}, "items": values_of(nodes)}))
    for node in nodes:
        api.answer(f"PATCH /apis/dovetail.dev/v1beta1/gpunodes/{node.metadata.name}", Answer(body=values_of(node)))
    said = await limits._change_devices(cluster, words=["a:1", "b:0"], wanted={"training_per_device": 2})
    assert said == ["a:1 training_per_device: 2", "b:0 training_per_device: 2"]
    patches = {seen.path.rpartition("/")[2]: seen.body for seen in api.seen if seen.method == "PATCH"}
    assert patches == {
        "a": {"spec": {"tenantLimits": {"GPU-a-1": {"training": 2}}}},
        "b": {"spec": {"tenantLimits": {"GPU-b-0": {"training": 2}}}},
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (False, "false"), ([], "none"), (["a=b", "c"], "a=b, c"), ({"a": 1}, "a=1"), (3, "3")],
)
def test_values_are_shown_without_the_words_of_python(value: object, text: str) -> None:
    assert limits._shown(value) == text
