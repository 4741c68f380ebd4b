import csv
import io
from collections.abc import Sequence
from random import Random

import msgspec
import pytest

from dovetail import names
from dovetail.answers.inventory import Inventory, take
from dovetail.answers.node_rows import inventory_row
from dovetail.api.builtin import Pod
from dovetail.api.gpunode import Enforcement, GPUNode
from dovetail.api.meta import Condition
from dovetail_cli.nodes import inventory
from dovetail_cli.ui import output
from tests.cli.builders import ago, make_gpunode, make_pod
from tests.core.answers.test_nodes import inventory_of, job_pod


def reporting(gpunode: GPUNode, **status: object) -> GPUNode:
    return msgspec.structs.replace(gpunode, status=msgspec.structs.replace(gpunode.status, **status))


def taken(*gpunodes: GPUNode, pods: Sequence[Pod] = ()) -> Inventory:
    return take(gpunodes, pods=pods, scheduler="Running", namespace="default")


def test_on_a_cluster_with_one_node_the_devices_begin_at_the_margin() -> None:
    text = inventory.text(
        inventory_of(job_pod(5), utilization=0.354, used_mib=1024, temperature_celsius=45, power_watts=120)
    )
    assert text.splitlines()[:14] == [
        "Scheduler Status: Running",
        "Total GPUs: 2",
        "Available GPUs: 1",
        "Enforcement: none",
        "",
        "GPU 0: V100",
        "  UUID: GPU-a-0",
        "  Status: In use by job 5",
        "  Memory: 1024/32768 MiB",
        "  Utilization: 35%",
        "  Temperature: 45 C",
        "  Power: 120 W",
        "  Tenants: 1 unspecified",
        "GPU 1: V100",
    ]


def test_on_others_they_are_below_their_node() -> None:
    text = inventory.text(taken(make_gpunode("a", gpus=1), make_gpunode("b", gpus=1)))
    assert "\n\nNode a\n  Enforcement: none\n  GPU 0: V100\n    UUID: GPU-a-0\n" in text
    assert "\n\nNode b\n  Enforcement: none\n  GPU 0: V100\n    UUID: GPU-b-0\n" in text


def test_of_many_nodes_a_line_says_what_each_has_free_and_why_it_takes_no_work() -> None:
    nodes = [make_gpunode(f"n{index}", gpus=2, used_mib=1024, utilization=0.5) for index in range(5)]
    lines = inventory.text_by_node(taken(*nodes, pods=[job_pod(5, node="n1")])).splitlines()
    assert lines[4].split() == list(inventory.NODE_COLUMNS)
    assert lines[5].split() == ["n0", "V100", "2", "2", "50%", "2/64", "ok"]
    assert lines[6].split()[:4] == ["n1", "V100", "2", "1"]
    assert lines[-1] == "`ginfo -v` shows each device."


@pytest.mark.parametrize(("nodes", "verbose", "brief"), [(4, False, False), (5, False, True), (5, True, False)])
def test_five_nodes_are_many(nodes: int, verbose: bool, brief: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = taken(*(make_gpunode(f"n{index}") for index in range(nodes)))
    monkeypatch.setattr(inventory, "work", lambda *_args, **_options: (found, False))
    shown = inventory.show(
        by_job=False, verbose=verbose, form="table", kubeconfig=None, context=None, namespace="default"
    )
    assert shown == (inventory.text_by_node(found) if brief else inventory.text(found))


@pytest.mark.parametrize(("vendor", "name"), [("nvidia", "CUDA"), ("amd", "Runtime")])
def test_driver_cuda_and_compute_capability_are_shown_where_they_are_known(vendor: str, name: str) -> None:
    gpunode = make_gpunode("a", gpus=1, compute_capability="9.0" if vendor == "nvidia" else "")
    device = msgspec.structs.replace(gpunode.status.devices[0], vendor=vendor)
    found = taken(reporting(gpunode, driver_version="550.54.15", runtime_version="12.4", devices=[device]))
    text = inventory.text(found)
    assert f"\nEnforcement: none\nDriver: 550.54.15\n{name}: 12.4\n" in text
    assert ("  Compute capability: 9.0" in text) == (vendor == "nvidia")
    (row,) = inventory.rows(found)
    assert (row["driver_version"], row["runtime_version"]) == ("550.54.15", "12.4")


def test_what_a_node_enforces_is_told_in_words_and_why_not_to_programs() -> None:
    enforcement = Enforcement(turns=True, time_slicing=True, reasons={"mps": "MPS is switched off"})
    found = taken(reporting(make_gpunode("a"), enforcement=enforcement))
    assert "Enforcement: turns, time-slicing\n" in inventory.text(found)
    assert inventory_row(found).nodes[0].enforcement.reasons == {"mps": "MPS is switched off"}


def test_what_the_driver_does_not_give_is_said_to_be_missing() -> None:
    assert "  Temperature: not available\n  Power: not available" in inventory.text(inventory_of())


def test_grouped_by_job_each_line_has_what_a_job_holds() -> None:
    pods = [
        make_pod("p5", held=((0, 500, 1024), (1, 1000, 2048)), labels={names.LABEL_JOB_NUMBER: "5"}),
        make_pod("note", held=((0, 250, 512),)),
    ]
    found = taken(make_gpunode("a"), make_gpunode("b"), pods=pods)
    assert inventory.text_by_job(found).splitlines()[2:] == [
        "Available GPUs: 2",
        "",
        "HOLDER    NAMESPACE  KIND  GPUS  MEMORY_MIB  DEVICES",
        "job 5     default    -     1.5   3072        a:0,1",
        "pod note  default    -     0.25  512         a:0",
        "",
        "Available: b:0,1",
    ]
    alone = inventory.text_by_job(taken(make_gpunode("a"), pods=pods))
    assert alone.splitlines()[5].split() == ["job", "5", "default", "-", "1.5", "3072", "0,1"]
    assert alone.endswith("\nAvailable: none")


def test_no_gpu_at_all_is_said() -> None:
    text = inventory.text(take([], pods=[], scheduler="Unknown", namespace="default"))
    assert text == "Scheduler Status: Unknown\nTotal GPUs: 0\nAvailable GPUs: 0\nNo node reports a GPU."


def test_csv_has_a_row_a_device() -> None:
    text = output.as_csv(inventory.rows(inventory_of(job_pod(5))), columns=inventory.CSV_COLUMNS)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["node"], row["index"], row["status"]) for row in rows] == [
        ("a", "0", "In use by job 5"),
        ("a", "1", "Available"),
    ]


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("NoLibrary", "This machine has no GPU: jobs run on its CPUs."),
        ("Driver", "Takes no work: the driver is too old"),
    ],
)
def test_a_machine_without_a_driver_says_that_jobs_run_all_the_same(reason: str, says: str) -> None:
    message = "node local: the driver is too old"
    ready = Condition(type="Ready", status="False", reason=reason, message=message, last_transition_time=ago(hours=1))
    machine = reporting(make_gpunode("local", gpus=0), conditions=[ready])
    assert says in inventory.text_of_machine(taken(machine)).splitlines()


@pytest.mark.parametrize("seed", range(4))
def test_each_line_counts_the_devices_of_its_node_and_model(seed: int) -> None:
    """Nodes of several models, some of them partitioned, cordoned or held."""
    rng = Random(seed)
    nodes, held, wanted = list[GPUNode](), list[Pod](), list[tuple[str, str, int, int, str]]()
    for name in ("a", "b", "c"):
        made = make_gpunode(name, gpus=6)
        models = {at: rng.choice(["V100", "H100"]) for at in range(6)}
        devices = [
            msgspec.structs.replace(each, model=models[each.index], mig_profile="1g.10gb" if rng.random() < 0.3 else "")
            for each in made.status.devices
        ]
        closed, taken_up = set(rng.sample(range(6), 2)), set(rng.sample(range(6), 2))
        made = msgspec.structs.replace(
            made, spec=msgspec.structs.replace(made.spec, cordoned=[f"GPU-{name}-{at}" for at in closed])
        )
        nodes.append(reporting(made, devices=devices))
        held += [
            make_pod(f"p-{name}-{at}", node=name, held=((at, 1000, 1024),), labels={names.LABEL_JOB_NUMBER: "5"})
            for at in taken_up
        ]
        for model in dict.fromkeys(models.values()):
            own = {at for at, each in models.items() if each == model}
            out = len(own & closed)
            state = f"{out} of {len(own)} take no work: " if out else "ok"
            wanted.append((name, model, len(own), len(own - closed - taken_up), state))
    rows = inventory.node_rows(taken(*nodes, pods=held))
    found = [(row["NODE"], row["MODEL"], row["GPUS"], row["FREE"], row["STATE"]) for row in rows]
    assert len(found) == len(wanted)
    for row, (*figures, state) in zip(found, wanted, strict=True):
        assert list(row[:4]) == figures
        assert row[4].startswith(state)
        assert (row[4] == "ok") == (state == "ok")
