"""Jobs on the GPUs of one's own machine, from what `gflowd up` prints of them to the process.

A stand-in plays NVIDIA's library.
"""

import json
import os
import subprocess
import sys
from asyncio import to_thread
from typing import Any

import pytest

from tests.agent.nvml_stub import DRIVER_NOT_LOADED, Process, Scenario, card_uuid
from tests.console.browser import CHROMIUM
from tests.local_node import cards
from tests.local_node.cards import CARDS, Play, Site
from tests.local_node.console import sentence_of_first_waiting
from tests.local_node.machine import Machine, kubectl
from tests.polling import until

pytestmark = pytest.mark.cluster

# As programs read the devices that a queue has given them.
PROGRAM = """\
import os
print([int(each) for each in os.environ["CUDA_VISIBLE_DEVICES"].split(",")], os.environ["CUDA_DEVICE_ORDER"])
"""

site, machine, play = cards.site, cards.machine, cards.play


def device(index: int) -> dict[str, Any]:
    words = [*kubectl(), "get", "gpunode", "local", "--output=json"]
    found = subprocess.run(words, capture_output=True, check=True).stdout
    shown: dict[str, Any] = json.loads(found)["status"]["devices"][index]
    return shown


def test_up_shows_four_cards_and_a_job_gets_the_last_two(site: Site, machine: Machine) -> None:
    printed = site.printed.splitlines()
    assert "Jobs run on this machine" in printed[0]
    assert printed[1].startswith("local (nvml, driver 580.65.06")
    assert [line for line in printed if "── " in line and "H100" in line] == [
        f"{'└' if card == CARDS - 1 else '├'}── {card}: NVIDIA H100 80GB HBM3, compute capability 9.0"
        for card in range(CARDS)
    ]
    (machine.work / "train.py").write_text(PROGRAM)
    first = machine.submit("--gpus", "2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 300")
    machine.printed(first, "0,1")
    second = machine.submit("--gpus", "2", "sh", "-c", f"{sys.executable} train.py; sleep 300")
    machine.printed(second, "[2, 3] PCI_BUS_ID")
    # A program prints before the queue has heard of its start.
    until(lambda: machine("gqueue", "-j", second, "-f", "NODELIST").split()[-1] == "2,3")


def about(machine: Machine) -> str:
    """The line of the machine in what `gflowd up` prints."""
    return machine("gflowd", "up").splitlines()[1]


def test_a_driver_that_is_not_loaded_is_named(site: Site, machine: Machine) -> None:
    said = ": its devices cannot be read: NVML: driver not loaded"
    with site.playing(Scenario(answers=[("nvmlInitWithFlags", -1, DRIVER_NOT_LOADED)])):
        until(lambda: about(machine).endswith(said), what=lambda: about(machine))
        assert about(machine).startswith("local")


@pytest.mark.skipif(b"libnvidia-ml" in subprocess.check_output(["ldconfig", "-p"]), reason="needs a machine without")
def test_a_machine_that_has_lost_its_library_says_so_and_runs_jobs(site: Site, machine: Machine) -> None:
    with site.without_library():
        said = ": its devices cannot be read: no vendor's library can be loaded"
        until(lambda: said in about(machine), what=lambda: about(machine))
        assert "jobs that ask no GPU run" in about(machine)
        assert machine.ended(machine.submit("true"))["phase"] == "Succeeded"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
async def test_up_ends_with_an_address_that_leads_to_why_a_job_waits(machine: Machine) -> None:
    printed = await to_thread(machine, "gflowd", "up")
    job = await to_thread(machine.submit, "--gpus", "64", "--wait-for-capacity", "sleep", "600")
    sentence = await sentence_of_first_waiting(printed)
    shown = await to_thread(machine.show, job)
    assert (shown["phase"], shown["message"]) == ("Queued", sentence)
    await to_thread(machine, "gcancel", job)


def test_a_whole_gpu_is_the_jobs_own(machine: Machine) -> None:
    job = machine.submit("--gpus", "1", "sh", "-c", "echo $DOVETAIL_GPU_UUIDS; sleep 60")
    machine.printed(job, "GPU-")
    assert machine.log(job).strip() in {card_uuid(card) for card in range(CARDS)}
    until(lambda: f"Available GPUs: {CARDS - 1}" in machine("ginfo"), what=lambda: machine("ginfo"))
    machine("gcancel", job)
    assert machine.ended(job)["phase"] == "Cancelled"


def test_all_gpus_and_a_job_that_waits_for_one(machine: Machine) -> None:
    os.mkfifo(machine.work / "go")
    all_of_them = machine.submit("--gpus", str(CARDS), "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read line < go")
    machine.printed(all_of_them, ",".join(map(str, range(CARDS))))
    waiting = machine.submit("--gpus", "1", "true")
    until(lambda: "(Resources: Need 1 GPU" in machine("gqueue"), what=lambda: machine("gqueue"))
    (machine.work / "go").write_text("\n")
    assert machine.ended(all_of_them)["phase"] == "Succeeded"
    assert machine.ended(waiting)["phase"] == "Succeeded"


def test_a_job_finds_the_file_that_will_show_a_notice_of_preemption(machine: Machine) -> None:
    job = machine.submit("--gpus", "1", "sh", "-c", "cd $DOVETAIL_VOLUME_DOVETAIL_NOTICE && wc -c preempting-at")
    assert machine.ended(job)["phase"] == "Succeeded"
    assert machine.log(job) == "0 preempting-at\n"


def test_what_a_share_uses_is_not_counted_twice(machine: Machine, play: Play) -> None:
    job = machine.submit(
        "-g",
        "0.5",
        "--gpu-memory",
        "8G",
        "sh",
        "-c",
        "echo $$$$ $DOVETAIL_GPU_UUIDS .; exec sleep 60",  # $$ is one $ in a pod
    )
    machine.printed(job, ".")
    pid, uuid, _ = machine.log(job).split()
    card = [card_uuid(each) for each in range(CARDS)].index(uuid)
    processes = [Process(card=card, pid=int(pid), mib=6000), Process(card=card, pid=1, mib=1000)]
    play(Scenario(cards=CARDS, processes=processes, figures={card: {"used": 7000}}))
    until(lambda: device(card)["usedMiB"] == 7000, what=lambda: str(device(card)))
    assert device(card)["foreignMiB"] == 1000
