import csv
import io

import msgspec

from dovetail.api.gpunode import Enforcement
from dovetail.query.nodes.inventory import take
from dovetail.query.nodes.rows import inventory_row
from dovetail_cli.nodes import inventory
from dovetail_cli.ui import output
from tests.cli.builders import make_gpunode
from tests.core.query.nodes.test_inventory import inventory_of, job_pod


def test_the_text_is_the_one_that_people_know() -> None:
    text = inventory.text(
        inventory_of(job_pod(5), utilization=0.354, used_mib=1024, temperature_celsius=45, power_watts=120)
    )
    assert text.splitlines()[:13] == [
        "Scheduler Status: Running",
        "Total GPUs: 2",
        "Available GPUs: 1",
        "",
        "Node a",
        "  Enforcement: none",
        "  GPU 0: V100",
        "    UUID: GPU-a-0",
        "    Status: In use by job 5",
        "    Memory: 1024/32768 MiB",
        "    Utilization: 35%",
        "    Temperature: 45 C",
        "    Power: 120 W",
    ]


def test_what_a_node_enforces_is_told_in_words_and_why_not_to_programs() -> None:
    gpunode = make_gpunode("a")
    enforcement = Enforcement(turns=True, time_slicing=True, reasons={"mps": "MPS is switched off"})
    reporting = msgspec.structs.replace(
        gpunode, status=msgspec.structs.replace(gpunode.status, enforcement=enforcement)
    )
    found = take([reporting], pods=[], scheduler="Running", namespace="default")
    assert "Node a\n  Enforcement: turns, time-slicing\n" in inventory.text(found)
    assert inventory_row(found).nodes[0].enforcement.reasons == {"mps": "MPS is switched off"}


def test_what_the_driver_does_not_give_is_said_to_be_missing() -> None:
    assert "    Temperature: not available\n    Power: not available" in inventory.text(inventory_of())


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
