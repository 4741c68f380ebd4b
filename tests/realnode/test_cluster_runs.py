"""A program of three modules runs on a real node as it is typed, and its results come back."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dovetail_sandbox import realnode
from tests import commands
from tests.realnode.conftest import RealSandbox
from tests.realnode.test_gpujob import NAMESPACE, clean
from tests.realnode.test_images import build

pytestmark = [pytest.mark.cluster, pytest.mark.realnode]

__all__ = ["clean"]

BUSYBOX = "dovetail.local/env:dev"
TAINT = "dovetail.dev/real-node"
TRAIN = """import os, pathlib, sys, time
from net.model import loss

pathlib.Path("results").mkdir()
pathlib.Path("results/loss.txt").write_text(str(loss(2)))
print(os.environ["NVIDIA_VISIBLE_DEVICES"].count("GPU-"), "GPUs", flush=True)
time.sleep(float(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Someone who types commands in a folder, with profiles of their own."""

    sandbox: RealSandbox
    folder: Path
    volume: Path
    claim: str

    def run(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.words(*words), cwd=self.folder, env=self.environment(), input=stdin, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip

    def __call__(self, *words: str, stdin: str = "") -> str:
        """Standard output; the command must succeed."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, *words: str) -> str:
        """The number of the job."""
        return self("gbatch", *words).removeprefix("Submitted batch job ").strip()

    def words(self, *words: str) -> list[str]:
        return [*commands.dovetail(), *words]

    def environment(self) -> dict[str, str]:
        own = {"KUBECONFIG": str(self.sandbox.control_plane.kubeconfig), "XDG_CONFIG_HOME": f"{self.folder}-config"}
        return {**os.environ, **own}

    def until(self, job: str, state: str) -> None:
        self.sandbox.wait_until(lambda: self.job(job)["phase"] == state, deadline_s=120)

    def job(self, job: str) -> dict[str, Any]:
        (found,) = json.loads(self("gqueue", "-a", "-j", job, "-o", "json"))
        return dict(found)

    def on_volume(self) -> None:
        """From now on, directories are on the volume."""
        self("config", "set", "volumes", f"{self.claim}:/data")
        self("config", "set", "workdir", "/data/runs")


@pytest.fixture
def person(sandbox: RealSandbox, tmp_path: Path) -> Iterator[Person]:
    folder, volume = tmp_path / "work", tmp_path / "volume"
    for each in (folder, volume):
        each.mkdir()
    # The images run as users without rights here.
    volume.chmod(0o777)
    sandbox.kubectl("taint", "node", realnode.NODE_NAME, f"{TAINT}-")
    # A claim that an earlier test deleted may be there a while longer.
    claim = f"runs-{time.monotonic_ns()}"
    items = claimed(volume, name=claim)
    sandbox.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    who = Person(sandbox=sandbox, folder=folder, volume=volume, claim=claim)
    who("config", "set", "image", BUSYBOX)
    who("config", "set", "node-selector.kubernetes.io/hostname", realnode.NODE_NAME)
    try:
        yield who
    finally:
        sandbox.kubectl("taint", "--overwrite", "node", realnode.NODE_NAME, f"{TAINT}=true:NoSchedule")
        sandbox.kubectl("delete", "pvc,pv", "--all", f"--namespace={NAMESPACE}", "--wait=false")


def claimed(folder: Path, *, name: str) -> list[dict[str, Any]]:
    """A volume in a folder of this machine, and the claim to it."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    volume = {"capacity": size, "hostPath": {"path": str(folder)}, "claimRef": {"name": name, "namespace": NAMESPACE}}
    wanted = {"resources": {"requests": size}, "volumeName": name}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {**common, **volume}},
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {**common, **wanted},
        },
    ]  # fmt: skip


def write_program(folder: Path) -> None:
    (folder / "net").mkdir()
    (folder / "net" / "__init__.py").touch()
    (folder / "net" / "layers.py").write_text("def width() -> int:\n    return 8\n")
    (folder / "net" / "model.py").write_text(
        "from net.layers import width\n\n\ndef loss(step: int) -> float:\n    return width() / step\n"
    )
    (folder / "train.py").write_text(TRAIN)
    (folder / "data").mkdir()
    (folder / "data" / "large").write_bytes(os.urandom(2_000_000))
    (folder / ".gitignore").write_text("data/\n")


def test_three_modules_run_as_typed_and_results_come_back_while_it_runs(person: Person) -> None:
    built = build("agent")
    assert built.returncode == 0, built.stderr
    ctr = person.sandbox.control_plane.binaries["ctr"]
    realnode.import_images(person.sandbox.folder, Path(built.stdout.strip()), ctr=ctr)
    person("config", "set", "image", "dovetail.local/agent:dev")
    write_program(person.folder)
    done = person.run("gbatch", "--gpus", "2", "-n", "modules", "python3", "train.py", "30")
    assert done.stdout == f"Submitted batch job {person.job('modules')['number']}\n"
    assert "is on no volume: what the job writes there is lost" in done.stderr
    person.until("modules", "Running")
    person.sandbox.wait_until(lambda: "2 GPUs" in person("gjob", "log", "modules"))
    assert person("gjob", "fetch", "modules", "results", "--to", "back").startswith("1 file of ")
    assert (person.folder / "back" / "results" / "loss.txt").read_text() == "4.0"
    person("gcancel", "modules")
    label = "--selector=dovetail.dev/job=modules"
    person.sandbox.kubectl("wait", "--for=delete", "pods", label, "--timeout=90s", f"--namespace={NAMESPACE}")
    gone = person.run("gjob", "fetch", "modules")
    assert (gone.returncode, "was on no volume, so its files are gone" in gone.stderr) == (1, True)


def test_on_a_volume_results_come_back_after_the_end_and_another_run_has_its_own(person: Person) -> None:
    person.on_volume()
    (person.folder / "run.sh").write_text("echo out; echo err >&2; mkdir results; cp run.sh results/copy\n")
    first = person.submit("-n", "first", "-o", "log/%j.txt", "sh", "run.sh")
    person.until(first, "Succeeded")
    assert f"in job-{first}" in person("gjob", "fetch", first)
    back = person.folder / f"job-{first}"
    assert sorted((back / "log" / f"{first}.txt").read_text().split()) == ["err", "out"]
    assert (back / "results" / "copy").read_text() == (person.folder / "run.sh").read_text()
    second = person("gjob", "redo", first).removeprefix("Submitted batch job ").strip()
    person.until(second, "Succeeded")
    assert len(list((person.volume / "runs").iterdir())) == 2
    assert sorted(person("gjob", "log", first).split()) == sorted(person("gjob", "log", second).split())
    pods = json.loads(person.sandbox.kubectl("get", "pods", f"--namespace={NAMESPACE}", "-o", "json"))["items"]
    assert [each["metadata"]["name"] for each in pods if "-files-" in each["metadata"]["name"]] == []


def test_a_large_directory_is_copied_onto_the_volume_and_refused_without_one(person: Person) -> None:
    (person.folder / "weights").write_bytes(os.urandom(2_000_000))
    refused = person.run("gbatch", "sh", "-c", "wc -c weights")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the largest are weights (1.9 MiB); name what the job does not need in .dovetailignore" in refused.stderr
    person.on_volume()
    job = person.submit("-n", "large", "wc -c <weights")
    person.until(job, "Succeeded")
    assert person("gjob", "log", job) == "2000000\n"


def test_the_copy_of_a_directory_is_deleted_with_its_job(person: Person) -> None:
    (person.folder / "a").write_text("a")
    person.until(person.submit("-n", "brief", "cat a"), "Succeeded")

    def copies() -> str:
        return person.sandbox.kubectl(
            "get", "cm", "-l", "dovetail.dev/config", f"--namespace={NAMESPACE}", "-o", "name"
        )

    assert copies().startswith("configmap/brief-directory-")
    person.sandbox.kubectl("delete", "gpujob", "brief", f"--namespace={NAMESPACE}")
    person.sandbox.wait_until(lambda: not copies())


def test_a_session_is_the_jobs_terminal_and_ends_it(person: Person) -> None:
    (person.folder / "here").write_text("here")
    said = person("gbatch", "--interactive", "-n", "session", stdin="ls; echo $((6 * 7))\nexit\n").splitlines()
    assert said[1:] == ["here", "42"]
    person.until("session", "Succeeded")


def test_a_port_of_the_job_is_a_port_of_this_machine(person: Person) -> None:
    (person.folder / "page").write_text("from the job")
    job = person.submit("-n", "notebook", "httpd -f -p 8888")
    person.until(job, "Running")
    words = person.words("gjob", "attach", "--port", "18888:8888", job)
    with subprocess.Popen(words, env=person.environment(), stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            assert "18888" in forwarding.stdout.readline()
            with urllib.request.urlopen("http://127.0.0.1:18888/page", timeout=30) as answer:
                assert answer.read() == b"from the job"
        finally:
            forwarding.terminate()
    person("gcancel", job)
