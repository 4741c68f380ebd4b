"""A bare sandbox with a real node, what Helm does with it, and the images that it has."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dovetail import names
from dovetail_sandbox import realnode
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.realnode.commands import call
from dovetail_sandbox.realnode.images import write_program_archive
from tests import commands
from tests.polling import until

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm" / "dovetail"
NAMESPACE: Final = "dovetail-system"
RELEASE: Final = "dovetail"
SCHEDULER_IMAGE: Final = "dovetail.local/kube-scheduler"
# Of each command. A test asserts no time; it prints how long the steps took.
_SECONDS: Final = 300.0
# Keeps the release's own pods away from simulated nodes, where containers only seem to run.
FLEET_TAINT: Final = "test/fleet"
# What the chart gets on a node without a GPU, without a registry and without a StorageClass.
VALUES: Final[Mapping[str, object]] = {
    "image.registry": "dovetail.local",
    "image.pullPolicy": "Never",
    "scheduler.image.repository": SCHEDULER_IMAGE,
    "scheduler.image.tag": "dev",
    "agent.provider": "simulated",
    # The sandbox has created the class of this node's runtime.
    "runtimeClass.create": False,
}
_OF_NAMESPACES: Final = frozenset({("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")})
Object = dict[str, Any]
# Kind, namespace and name of an object.
Name = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The sandbox, its programs, and the folder of its volumes."""

    cluster: Cluster
    programs: Mapping[str, Path]
    folder: Path
    # The names of all objects before the first installation.
    before: set[Name] = field(default_factory=set)

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return call(
            self.programs["kubectl"], f"--kubeconfig={self.cluster.kubeconfig}", *words, stdin=stdin, timeout_s=_SECONDS
        )

    def objects(self, kind: str, *words: str) -> list[Object]:
        """All objects of a kind, in the release's namespace if it has one."""
        text = self.kubectl("get", kind, f"--namespace={NAMESPACE}", "--output=json", *words)
        return list(json.loads(text)["items"])

    def get(self, kind: str, name: str, *, namespace: str = NAMESPACE) -> Object:
        found: Object = json.loads(self.kubectl("get", kind, name, f"--namespace={namespace}", "--output=json"))
        return found

    def names(self) -> set[Name]:
        """Every object of the cluster but Events, and what controllers derive from other objects."""
        kinds = self.kubectl("api-resources", "--verbs=list", "--output=name").split()
        derived = (
            "events", "events.events.k8s.io", "endpoints", "endpointslices.discovery.k8s.io",
            "apiservices.apiregistration.k8s.io",
        )  # fmt: skip
        columns = "--output=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
        wanted = ",".join(each for each in kinds if each not in derived)
        rows = self.kubectl(
            "get", wanted, "--all-namespaces", "--no-headers", columns, "--ignore-not-found"
        ).splitlines()
        found = (row.split() for row in rows)
        names = {(kind, "" if namespace == "<none>" else namespace, name) for kind, namespace, name in found}
        # Every namespace gets both, soon after it was created.
        return {each for each in names if (each[0], each[2]) not in _OF_NAMESPACES}

    def helm(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run Helm; the caller looks at how it ended."""
        # Files of Helm's own go with the sandbox.
        homes = {f"HELM_{what}_HOME": str(self.folder / "helm" / what.lower()) for what in ("CACHE", "CONFIG", "DATA")}
        return subprocess.run(
            [self.programs["helm"], *words, f"--namespace={NAMESPACE}", f"--kubeconfig={self.cluster.kubeconfig}"],
            env={**os.environ, **homes}, capture_output=True, text=True, check=False, timeout=_SECONDS,
        )  # fmt: skip

    def dovetail(self, *words: str) -> "subprocess.CompletedProcess[str]":
        env = {**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig)}
        return subprocess.run(
            [*commands.dovetail(), *words], env=env, capture_output=True, text=True, check=False, timeout=_SECONDS
        )

    def upgrade(
        self, *words: str, chart: Path = CHART, values: Mapping[str, object] | None = None, timeout: str = "4m"
    ) -> "subprocess.CompletedProcess[str]":
        """Install or upgrade, and wait until all is ready."""
        return self.helm(
            "upgrade",
            "--install",
            RELEASE,
            str(chart),
            "--wait",
            f"--timeout={timeout}",
            *settings({**VALUES, **(values or {})}),
            *words,
        )

    def state(self) -> str:
        """Pods, events and the ends of the components' logs, for the message of a failed test."""
        selector = "--selector=app.kubernetes.io/name=dovetail"
        logs = self.kubectl("logs", selector, "--all-containers", "--prefix", "--tail=15", f"--namespace={NAMESPACE}")
        return f"{self.kubectl('get', 'pods,events', '--all-namespaces')}\n{logs}"

    def until(self, condition: Callable[[], bool], *, what: str, seconds: float = 120.0) -> None:
        until(condition, what=lambda: what, seconds=seconds)


def settings(values: Mapping[str, object]) -> list[str]:
    """Helm's options for these values, by dotted path."""
    return [f"--set-json={path}={json.dumps(value)}" for path, value in values.items()]


def built(*names: str) -> list[Path]:
    """The archives of the product's images, built unless the cache has them."""
    script = ROOT / "images" / "build.sh"
    done = subprocess.run([script, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


def load(machine: Machine, *, archives: Sequence[Path]) -> None:
    """Import the images, and that of kube-scheduler, which is one program of the sandbox."""
    scheduler = machine.folder / "kube-scheduler.tar"
    write_program_archive(scheduler, image=f"{SCHEDULER_IMAGE}:dev", program=machine.programs["kube-scheduler"])
    realnode.import_images(machine.cluster.folder, *archives, scheduler, ctr=machine.programs["ctr"])


def earlier_chart(folder: Path) -> Path | None:
    """The chart before its last change, in the folder.

    None where this is no checkout with its history, or that chart stores another API version: no upgrade leads from it.
    """
    git = ("git", "-C", str(ROOT))
    last = subprocess.run(
        [*git, "log", "-1", "--format=%H", "--", "helm/dovetail"], capture_output=True, text=True, check=False
    )
    before = f"{last.stdout.strip()}~1"
    archived = subprocess.run([*git, "archive", before, "helm/dovetail"], capture_output=True, check=False)
    if last.returncode or archived.returncode:
        return None
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "--extract", f"--directory={folder}"], input=archived.stdout, check=True)
    chart = folder / "helm" / "dovetail"
    jobs = chart / "crd-files" / "gpujobs.yaml"
    stored = jobs.read_text(encoding="utf-8") if jobs.exists() else ""
    return chart if re.findall(r"- name: (v\w+)\n", stored) == [names.VERSION] else None


def make_volume(name: str, *, folder: Path) -> str:
    """A volume in a folder of this machine, reserved for the claim of the history or of the samples."""
    folder.mkdir()
    # Operator and gateway run as a user without rights here.
    folder.chmod(0o777)
    claim = {"name": f"dovetail-{name}", "namespace": NAMESPACE}
    spec = {
        "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "hostPath": {"path": str(folder)}, "claimRef": claim,
    }  # fmt: skip
    return json.dumps({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})


def make_job(name: str, *, gpu: str = "1(T4)", command: str = "env") -> str:
    """A GPUJob that runs a command of busybox."""
    container = {"name": "main", "image": "dovetail.local/env:dev", "imagePullPolicy": "Never"}
    pod = {"terminationGracePeriodSeconds": 0, "containers": [{**container, "command": ["sh", "-c", command]}]}
    spec = {"gpu": gpu, "template": {"spec": pod}}
    head = {"apiVersion": "dovetail.dev/v1beta1", "kind": "GPUJob"}
    return json.dumps({**head, "metadata": {"name": name, "namespace": "default"}, "spec": spec})


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long the block took; `pytest -s` shows it, and so does the report of a failure."""
    started = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started:.1f} s")
