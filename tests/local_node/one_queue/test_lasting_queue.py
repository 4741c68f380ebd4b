"""A queue that outlives `gflowd down`, a boot of the machine, and kill -9 of everything."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_local_node.runs import Runs
from dovetail_sandbox import cluster, state
from dovetail_sandbox.localnode import queue, setup
from dovetail_sandbox.processes import processes
from tests.local_node.machine import Machine
from tests.polling import PATIENCE_SECONDS, until

pytestmark = pytest.mark.cluster

LOOP = "while [ ! -e {0} ]; do sleep 0.05; done"


def running(machine: Machine, *words: str) -> str:
    """The number of a job that has printed `begins` and waits for a file."""
    job = machine.submit(*words)
    machine.printed(job, "begins")
    return job


def runs() -> Runs:
    return setup.runs(cluster.get().folder)


def process_of(machine: Machine, job: str) -> ProcessId:
    """The shim that waits for a job."""
    found = runs().process(machine.pod_uid(job))
    assert found
    return found


def kill_everything(*, but: list[str], machine: Machine) -> None:
    """SIGKILL for each process of the sandbox and the shims of its jobs, but those of some jobs.

    The shims are last, so that the local node does not report how their jobs ended.
    """
    spared = {machine.pod_uid(job) for job in but}
    shims = [(run.uid, runs().process(run.uid)) for run in runs().all()]
    supervisor = cluster.get().state().supervisor
    assert supervisor
    processes.end([supervisor, *processes.programs_of(cluster.get().folder)], grace_seconds=0)
    for uid, shim in shims:
        if uid not in spared and shim and identity.alive(shim):
            os.killpg(shim.pid, signal.SIGKILL)


def as_of_another_boot(uid: str) -> None:
    """Make a run one that an earlier boot has started."""
    path = runs().of(uid) / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "earlier"}))


def sandbox_status(machine: Machine) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(machine.run("sandbox", "status", "-o", "json").stdout)
    return shown


def is_starting() -> bool:
    """Whether `up` is at work and etcd runs."""
    known = state.read(cluster.get().folder)
    return known is not None and known.phase == "starting" and "etcd" in state.read_observed(cluster.get().folder)


def refuses_simulated_nodes(machine: Machine) -> None:
    refused = machine.run("gflowd", "up", "--simulated")
    assert (refused.returncode, "has the queue of this machine" in refused.stderr) == (1, True)


def stays_as_it_is_where_etcd_cannot_read_it(machine: Machine) -> None:
    log = next(queue.etcd_data(cluster.get().folder).glob("member/wal/*.wal"))
    written = log.read_bytes()
    log.write_bytes(b"x" * len(written))
    failed = machine.run("gflowd", "up")
    assert (failed.returncode, "etcd ended with" in failed.stderr) == (1, True)
    assert "stays as it is. To remove it: gflowd down --purge\n" in failed.stderr
    log.write_bytes(written)


def test_the_queue_goes_on_after_down_and_up_although_another_program_has_taken_a_port(machine: Machine) -> None:
    ended = machine.submit("sh", "-c", "exit 3")
    machine.ended(ended)
    first = running(machine, "sh", "-c", "trap 'echo saves; exit 0' TERM; echo begins; while :; do sleep 0.05; done")
    held = machine.submit("--begin", "now+1h", "echo", "held")
    after = machine.submit("--depends-on-any", f"{first},{held}", "--no-auto-cancel", "echo", "after")
    waiting = machine.submit("--depends-on", ended, "--no-auto-cancel", "true")
    before = cluster.get().state().ports

    done = machine.run("gflowd", "down")
    assert f"1 running job ended. Its queue is kept in {cluster.get().folder}." in done.stderr
    assert processes.of_sandbox(cluster.get().folder) == []
    assert machine.log(first).endswith("saves\n")
    assert sandbox_status(machine)["phase"] == "Stopped"
    refused = machine.run("gbatch", "true")
    assert (refused.returncode, "gflowd up" in refused.stderr) == (4, True)
    refuses_simulated_nodes(machine)
    stays_as_it_is_where_etcd_cannot_read_it(machine)

    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", before["kube-apiserver"]))
        taken.listen()
        machine("gflowd", "up")
        now = cluster.get().state().ports
    assert now["kube-apiserver"] != before["kube-apiserver"]
    assert now["gateway.port"] == before["gateway.port"]
    assert machine.show(ended)["message"].endswith("exit code 3")
    # Its exit code 0 does not mean that it did its work.
    assert machine.ended(first)["message"].endswith("exit code 143 (Stopped)")
    assert [machine.show(job)["phase"] for job in (held, after, waiting)] == ["Queued"] * 3
    new = machine.submit("true")
    assert int(new) == int(waiting) + 1
    assert machine.ended(new)["phase"] == "Succeeded"
    for job in (held, after, waiting):
        machine("gcancel", job)


def test_after_the_end_of_everything_and_an_interrupted_up_each_job_is_followed_or_reported_and_none_runs_twice(
    machine: Machine,
) -> None:
    survives = running(machine, "sh", "-c", f"echo begins; {LOOP.format('survived')}; echo ends")
    killed = running(machine, "sh", "-c", f"echo begins; {LOOP.format('never')}")
    booted = running(machine, "sh", "-c", f"echo begins; {LOOP.format('never')}")
    waits = machine.submit("--depends-on", survives, "echo", "then")
    shim, uid = process_of(machine, survives), machine.pod_uid(booted)

    kill_everything(but=[survives], machine=machine)
    as_of_another_boot(uid)
    assert sandbox_status(machine)["message"] == "The supervisor does not run; `gflowd up` continues the queue."

    command = [sys.executable, "-m", "dovetail_cli", "gflowd", "up"]
    with subprocess.Popen(command, cwd=machine.work, env=dict(machine.environment), stderr=subprocess.PIPE) as starting:
        until(is_starting)
        starting.send_signal(signal.SIGINT)
        assert starting.wait(PATIENCE_SECONDS) != 0
    assert sandbox_status(machine)["phase"] == "Stopped"
    assert processes.programs_of(cluster.get().folder) == []

    machine("gflowd", "up")
    assert machine.ended(booted)["message"].endswith("exit code 255 (Rebooted)")
    assert machine.ended(killed)["message"].endswith("exit code 137")
    assert identity.alive(shim)
    (machine.work / "survived").touch()
    assert machine.ended(survives)["phase"] == "Succeeded"
    assert machine.ended(waits)["phase"] == "Succeeded"
    assert [machine.log(job) for job in (survives, killed, booted)] == ["begins\nends\n", "begins\n", "begins\n"]


def test_purging_removes_all_but_the_logs(machine: Machine) -> None:
    job = running(machine, "sh", "-c", "echo begins; exec sleep 600")
    data = Path(machine.environment["XDG_DATA_HOME"], "gflow")
    done = machine.run("gflowd", "down", "--purge")
    assert f"1 running job ended. The logs of its jobs stay in {data / 'logs-1'}." in done.stderr
    assert not cluster.get().folder.exists()
    assert [path.name for path in data.iterdir()] == ["logs-1"]
    # The shell may add that it was ended.
    assert (data / "logs-1" / f"{job}.log").read_text().startswith("begins\n")
    machine("gflowd", "up")
    assert machine.submit("echo", "own") == "1"
    machine.ended("1")
    assert machine.log("1") == "own\n"
