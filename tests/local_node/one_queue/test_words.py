"""A person with a machine and no cluster: whatever the commands print has no word of Kubernetes."""

import re

import pytest

from dovetail_cli.cluster import audit
from dovetail_sandbox import cluster
from tests.local_node.machine import Machine, printed
from tests.polling import until

pytestmark = pytest.mark.cluster

FOREIGN = re.compile(
    r"kube|Kubernetes|\bpods?\b|namespace|container|\bnode\b|Job controller|BackoffLimit|DeadlineExceeded|\bspec\."
    r"|onNoGPU|sandbox|GPUJob|cluster",
    re.IGNORECASE,
)
# What people type, paths, and the columns of Slurm's squeue.
OURS = re.compile(r"dovetail sandbox console|/\S+|NODELIST\(REASON\)|NodeList=|\bNODES\b|\bNODE\b")


def foreign(printed: str) -> list[str]:
    """The lines with a word that only a cluster has."""
    return [line for line in printed.splitlines() if FOREIGN.search(OURS.sub("", line))]


def test_jobs_that_end_in_every_way(machine: Machine) -> None:
    jobs = {
        "Failed": machine.submit("sh", "-c", "exit 3"),
        "TimedOut": machine.submit("-t", "0:01", "sleep", "60"),
        "Succeeded": machine.submit("true"),
    }
    slow, retried = machine.submit("sleep", "60"), machine.submit("--max-retries", "1", "false")
    tasks, missing = machine.submit("--array", "1-2", "false"), machine.submit("no-such-program")
    for phase, job in jobs.items():
        assert machine.ended(job)["phase"] == phase
    walk = [printed(machine, "gcancel", slow)]
    for job in (slow, retried, tasks, missing):
        machine.ended(job)
    walk += [printed(machine, "gjob", "show", job) for job in (jobs["Failed"], jobs["TimedOut"], slow, retried)]
    for job in (jobs["Failed"], tasks):
        walk += [printed(machine, *words, job) for words in (("gjob", "events"), ("gjob", "wait"), ("gjob", "log"))]
        walk.append(printed(machine, "explain", job))
    listed = printed(machine, "gqueue", "-a")
    assert "(TimeLimit: Ran longer than its time limit of 1 s)" in listed
    assert "(Failed: Worker 0 failed: exit code 3)" in listed
    assert "(Cancelled: Cancelled on request)" in listed
    assert foreign("\n".join([*walk, listed, printed(machine, "gstats")])) == []


def test_jobs_that_wait(machine: Machine) -> None:
    later = machine.submit("--begin", "now+1h", "true")
    gpu = machine.submit("--gpus", "64", "--wait-for-capacity", "true")
    after = machine.submit("-d", later, "true")
    full = machine.submit("--cpus", "64000", "--wait-for-capacity", "true")
    until(lambda: "Need 64000 CPUs: the largest request" in machine("gqueue"), what=lambda: machine("gqueue"))
    walk = [printed(machine, "gjob", "hold", later), printed(machine, "gqueue")]
    for job in (later, gpu, after, full):
        walk += [printed(machine, "gjob", "show", job), printed(machine, "explain", job)]
        walk.append(printed(machine, "gjob", "log", job))
    walk += [printed(machine, "gjob", "release", later), printed(machine, "gcancel", later, gpu, after, full)]
    assert foreign("\n".join(walk)) == []
    assert "gbatch --cpu-fallback" in "\n".join(walk)


def test_what_is_refused(machine: Machine) -> None:
    walk = [
        printed(machine, *words)
        for words in (
            ("gbatch", "--gpus", "64", "true"),
            ("gbatch", "--gpus", "2(V10)", "true"),
            ("gbatch", "--gpus", "x", "true"),
            ("gbatch", "--cpus", "64000", "true"),
            ("gbatch", "--memory", "900T", "true"),
            ("gbatch", "--dry-run", "--cpus", "64000", "true"),
            ("gbatch", "--dry-run", "--gpus", "64", "true"),
            ("gbatch", "--dry-run", "true"),
            ("gbatch", "-t", "x", "true"),
            ("gbatch", "-d", "999", "true"),
            ("gbatch", "./none.sh"),
            ("gjob", "show", "999"),
            ("gjob", "hold", "1"),
            ("gjob", "attach", "1"),
            ("gcancel", "999"),
            ("gqueue", "-s", "nope"),
            ("gqueue", "-j", "999"),
            ("explain", "request", "64"),
            ("ginfo",),
            ("gflowd", "up"),
        )
    ]
    assert foreign("\n".join(walk)) == []


def test_up_and_down_on_a_new_machine(begun: tuple[Machine, str]) -> None:
    """The last test here: it takes the queue down."""
    machine, up = begun
    assert "The queue is up." in up
    assert audit.prove(kubeconfig=str(cluster.get().kubeconfig), context=None).items == []
    assert foreign(up) == []
    assert foreign(printed(machine, "gflowd", "down")) == []
    assert foreign(printed(machine, "gflowd", "down", "--purge")) == []
