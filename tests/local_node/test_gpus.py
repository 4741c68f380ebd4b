"""Jobs on the GPUs of one's own machine, from `gbatch` to the process; a stand-in plays NVIDIA's library."""

import json
import os
import subprocess
from typing import Any

import pytest

from tests.agent.nvml_stub import Process, Scenario, card_uuid
from tests.local_node import cards
from tests.local_node.cards import Play
from tests.local_node.machine import Machine, kubectl, until

pytestmark = pytest.mark.cluster


scenario, machine, play = cards.scenario, cards.machine, cards.play


def device(index: int) -> dict[str, Any]:
    words = [*kubectl(), "get", "gpunode", "local", "--output=json"]
    found = subprocess.run(words, capture_output=True, check=True).stdout
    shown: dict[str, Any] = json.loads(found)["status"]["devices"][index]
    return shown


def test_a_whole_gpu_is_the_jobs_own(machine: Machine) -> None:
    job = machine.submit("--gpus", "1", "sh", "-c", "echo $DOVETAIL_GPU_UUIDS; sleep 60")
    machine.printed(job, "GPU-")
    assert machine.log(job).strip() in {card_uuid(0), card_uuid(1)}
    assert "Available GPUs: 1" in machine("ginfo")
    machine("gcancel", job)
    assert machine.ended(job)["phase"] == "Cancelled"


def test_two_gpus_and_a_job_that_waits_for_one(machine: Machine) -> None:
    os.mkfifo(machine.work / "go")
    both = machine.submit("--gpus", "2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read line < go")
    machine.printed(both, "0,1")
    waiting = machine.submit("--gpus", "1", "true")
    until(lambda: "(Resources: Need 1 GPU" in machine("gqueue"), what=lambda: machine("gqueue"))
    (machine.work / "go").write_text("\n")
    assert machine.ended(both)["phase"] == "Succeeded"
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
    card = [card_uuid(0), card_uuid(1)].index(uuid)
    processes = [Process(card=card, pid=int(pid), mib=6000), Process(card=card, pid=1, mib=1000)]
    play(Scenario(processes=processes, figures={card: {"used": 7000}}))
    until(lambda: device(card)["usedMiB"] == 7000, what=lambda: str(device(card)))
    assert device(card)["foreignMiB"] == 1000
    machine("gcancel", job)
    machine.ended(job)
