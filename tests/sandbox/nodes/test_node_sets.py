import json

import pytest

from dovetail import names
from dovetail_sandbox.errors import InvalidInputError
from dovetail_sandbox.nodes import kwok, node_sets
from dovetail_sandbox.nodes.node_sets import SimulatedNode

TRACE = "sn,cpu_milli,memory_mib,gpu,model\n"


def test_a_set_becomes_as_many_nodes_as_it_counts() -> None:
    nodes = node_sets.declared("- {name: v, count: 3, model: V100M16, devices: 8, cpu: 96, memory: 768Gi}")

    assert [node.name for node in nodes] == ["v-0", "v-1", "v-2"]
    assert nodes[0] == SimulatedNode(
        name="v-0", cpu_milli=96_000, memory_mib=786_432, model="V100M16", devices=8, device_memory_mib=16_384
    )


def test_a_declared_memory_wins_over_the_table_of_models() -> None:
    (node,) = node_sets.declared("- {name: v, model: V100, devices: 1, memory_mib: 12345}")

    assert node.device_memory_mib == 12_345


def test_a_node_without_a_model_has_no_devices() -> None:
    (node,) = node_sets.declared("- {name: cpu, cpu: 500m, memory: 1.5Gi}")

    assert (node.devices, node.model, node.cpu_milli, node.memory_mib) == (0, "", 500, 1536)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("- {name: v, model: V100, devices: 8, colour: red}", "nodes[0].colour", "'red'"),
        ("- {name: v, count: 0}", "nodes[0].count", "0"),
        ("- {name: v, count: many}", "nodes[0].count", "'many'"),
        ("- {name: v, model: V100, devices: -1}", "nodes[0].devices", "-1"),
        ("- {name: v, model: V100, devices: true}", "nodes[0].devices", "True"),
        ("- {name: v, model: V100}", "nodes[0].model", "'V100'"),
        ("- {name: v, devices: 4}", "nodes[0].model", "''"),
        ("- {name: v, model: 100, devices: 4}", "nodes[0].model", "100"),
        ("- {name: v, model: Mystery9, devices: 4}", "nodes[0].memory_mib", "None"),
        ("- {name: v, model: V100, devices: 4, memory_mib: 1Gi}", "nodes[0].memory_mib", "'1Gi'"),
        ("- {name: v, model: V100, devices: 4, vendor: matrox}", "nodes[0].vendor", "'matrox'"),
        ("- {name: v, model: V100, devices: 4, resource: gpu}", "nodes[0].resource", "'gpu'"),
        ("- {name: v, model: V100, devices: 4, resource: 1}", "nodes[0].resource", "1"),
        ("- {name: v, resource: nvidia.com/gpu}", "nodes[0].resource", "'nvidia.com/gpu'"),
        ("- {name: v, cpu: much}", "nodes[0].cpu", "'much'"),
        ("- {name: v, cpu: 0}", "nodes[0].cpu", "0"),
        ("- {name: v, memory: 1Ki}", "nodes[0].memory", "'1Ki'"),
        ("- {name: v, memory: [1]}", "nodes[0].memory", "[1]"),
        ("- {name: V_1}", "nodes[0].name", "'V_1'"),
        ("- {count: 1}", "nodes[0].name", "None"),
        ("[{name: v}, {name: w, cpu: -1}]", "nodes[1].cpu", "-1"),
        ("[{name: v}, {name: v}]", "name", "'v-0'"),
        ("{name: v}", "nodes", "'dict'"),
        ("[]", "nodes", "'list'"),
        ("[v]", "nodes", "'list'"),
        ("- {name: v", "nodes", "'- {name: v'"),
    ],
)
def test_a_wrong_declaration_is_refused_by_field_and_value(text: str, field: str, value: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        node_sets.declared(text)

    assert str(refused.value).startswith(f"{field}: {value} is not allowed; use ")


def test_a_trace_s_line_becomes_a_node() -> None:
    (node,) = node_sets.traced(TRACE + "openb-node-0000,64000,262144,2,P100\n")

    assert node == SimulatedNode(
        name="openb-node-0000",
        cpu_milli=64_000,
        memory_mib=262_144,
        model="P100",
        devices=2,
        device_memory_mib=16_384,
    )


def test_a_trace_s_unknown_model_has_the_declared_default_memory() -> None:
    (node,) = node_sets.traced(TRACE + "n,1,1,8,Mystery9\n")

    assert node.device_memory_mib == node_sets.UNKNOWN_MODEL_MIB


def test_a_trace_s_node_without_gpus_has_no_model() -> None:
    (node,) = node_sets.traced(TRACE + "n,1,1,0,\n")

    assert (node.devices, node.model, node.device_memory_mib) == (0, "", 0)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("sn,cpu_milli,memory_mib,model\nn,1,1,V100\n", "columns"),
        (TRACE, "nodes"),
        (TRACE + "n,many,1,1,V100\n", "line 2, cpu_milli"),
        (TRACE + "n,1,1,1,V100\nm,1,-3,1,V100\n", "line 3, memory_mib"),
        (TRACE + "n,1,1,1.5,V100\n", "line 2, gpu"),
        (TRACE + "n,1,1,1,\n", "line 2, model"),
        (TRACE + "n,1\n", "line 2, gpu"),
        (TRACE + "N!,1,1,1,V100\n", "line 2, sn"),
        (TRACE + "n,1,1,1,V100\nn,1,1,1,V100\n", "name"),
    ],
)
def test_a_wrong_line_of_a_trace_is_refused_by_line_and_column(text: str, field: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        node_sets.traced(text)

    assert refused.value.field == field


def test_the_builtin_nodes_have_three_models_and_a_node_without() -> None:
    nodes = node_sets.read(None)

    assert {node.model for node in nodes} == {"V100", "A100", "T4", ""}
    assert sum(node.devices for node in nodes) == 56


def test_the_ending_of_a_file_says_what_it_is(tmp_path) -> None:
    (tmp_path / "nodes.csv").write_text(TRACE + "n,1,1,1,V100\n")
    (tmp_path / "nodes.yaml").write_text("- {name: m}")

    assert node_sets.read(tmp_path / "nodes.csv")[0].name == "n"
    assert node_sets.read(tmp_path / "nodes.yaml")[0].name == "m-0"


def test_only_the_first_nodes_are_taken() -> None:
    assert [node.name for node in node_sets.read(None, limit=2)] == ["v100-0", "v100-1"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    with pytest.raises(InvalidInputError, match="limit-nodes"):
        node_sets.read(None, limit=limit)


def test_a_file_that_is_not_there_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="nodes"):
        node_sets.read(tmp_path / "none.yaml")


def test_a_manifest_declares_the_devices_to_the_agent() -> None:
    (node,) = node_sets.declared("- {name: t4, model: T4, devices: 4, memory_mib: 16384}")
    manifest = kwok.manifest(node)
    metadata = manifest["metadata"]

    assert metadata["labels"][names.LABEL_MANAGED] == "true"
    assert metadata["labels"][names.LABEL_MODEL] == "T4"
    assert json.loads(metadata["annotations"][names.SIMULATED_DEVICES]) == {
        "model": "T4", "count": 4, "memoryMiB": 16384, "reservedMiB": 0, "vendor": "nvidia",
    }  # fmt: skip


def test_a_vendor_s_node_advertises_its_resource_and_is_not_managed() -> None:
    (node,) = node_sets.declared("- {name: v, model: V100, devices: 4, memory_mib: 32768, resource: nvidia.com/gpu}")
    manifest = kwok.manifest(node)
    labels = manifest["metadata"]["labels"]

    assert names.LABEL_MANAGED not in labels
    assert (labels["nvidia.com/gpu.product"], labels["nvidia.com/gpu.memory"]) == ("V100", "32768")
    assert manifest["status"]["capacity"]["nvidia.com/gpu"] == "4"
    assert manifest["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert names.SIMULATED_DEVICES in manifest["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("model", "vendor", "resource"),
    [("MI300X", "amd", "amd.com/gpu"), ("910B", "ascend", "huawei.com/npu"), ("V100", "nvidia", "")],
)
def test_vendors_other_than_nvidia_serve_their_own_nodes(model: str, vendor: str, resource: str) -> None:
    (node,) = node_sets.declared(f"- {{name: v, model: {model}, devices: 8}}")

    assert (node.vendor, node.resource) == (vendor, resource)
    assert (names.LABEL_MANAGED in kwok.manifest(node)["metadata"]["labels"]) is (resource == "")


def test_a_trace_s_nodes_of_another_vendor_are_its_plugin_s() -> None:
    (node,) = node_sets.traced(f"{TRACE}n1,64000,262144,8,MI300X")

    assert (node.vendor, node.resource) == ("amd", "amd.com/gpu")


def test_a_manifest_without_devices_is_not_managed() -> None:
    (node,) = node_sets.declared("- {name: cpu}")
    metadata = kwok.manifest(node)["metadata"]

    assert names.LABEL_MANAGED not in metadata["labels"]
    assert names.SIMULATED_DEVICES not in metadata["annotations"]
    assert metadata["annotations"][names.SIMULATED_NODE] == "fake"
