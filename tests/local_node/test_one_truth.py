"""Each failure of a device on a real control plane, in every view: one sentence and one number.

Agent, node, scheduler and gateway are real; a stand-in plays NVIDIA's library. `pytest -s` prints what each view says
of each failure. `tests/gateway/test_one_truth.py` has further failures, on objects.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail import names
from dovetail_cli.cluster import this_machine
from dovetail_sandbox import cluster, credential
from dovetail_sandbox.cluster import Cluster
from tests.agent.nvml_stub import DRIVER_NOT_LOADED, GPU_IS_LOST, LIBRARY, Scenario, built
from tests.asked import has_ended
from tests.local_node.cards import library_away
from tests.local_node.machine import Machine, empty_machine, kubectl
from tests.polling import until

pytestmark = pytest.mark.cluster

NODE: Final = "local"
# The agent looks each second, and a report is old when a busy machine has missed a few.
SETTINGS: Final = ("monitor_update_interval=1", "heartbeat_interval=4", "measurement_max_age=12")
SLICE: Final = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "of-a-driver"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A machine with two cards, the folder with the library, and the file of what the library plays."""

    machine: Machine
    library: Path
    scenario: Path
    gateway: str
    token: str

    def play(self, scenario: Scenario) -> None:
        """From now on; the agent looks at once."""
        self.scenario.write_text(scenario.text())
        os.kill(cluster.get().pid("agent"), signal.SIGUSR1)

    def kubectl(self, *words: str, stdin: str = "") -> None:
        """Run kubectl as an administrator."""
        subprocess.run([*kubectl(), *words], input=stdin, text=True, check=True, capture_output=True, timeout=60)

    def json(self, *words: str) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.machine(*words, "-o", "json"))

    def rest(self, path: str, *, body: Any = None) -> Any:
        """What the gateway answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.gateway + path, data=data, headers=headers)) as answer:
            return json.load(answer)

    def refusal(self, gpu: str) -> str:
        """Why the extender refuses a pod that asks for `gpu`; empty when it does not."""
        sandbox = cluster.get()
        metadata = {"name": "probe", "namespace": "default", "uid": "probe", "annotations": {names.REQUEST: gpu}}
        limits = {names.GPU_MILLI: f"{gpu.partition('@')[0]}000"}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
        url = f"https://127.0.0.1:{sandbox.state().ports['extender.port']}/filter"
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": [NODE]}).encode()
        request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, context=credential.client_context(sandbox.credential)) as answer:
            said = json.load(answer)
        refused = {**(said.get("FailedNodes") or {}), **(said.get("FailedAndUnresolvableNodes") or {})}
        return str(refused.get(NODE, ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("one-truth")
    library, scenario = folder / "library", folder / "scenario"
    library.mkdir()
    shutil.copy(built() / LIBRARY, library)
    scenario.write_text(Scenario().text())
    variables = {"LD_LIBRARY_PATH": str(library), "NVML_STUB_SCENARIO": str(scenario)}
    with empty_machine(folder, **variables) as machine:
        machine("sandbox", "up", "--local", *(f"--set=config.{each}" for each in SETTINGS))
        gateway = json.loads(machine("sandbox", "status", "-o", "json"))["gateway"]
        token = machine("sandbox", "token").strip()
        yield Site(machine=machine, library=library, scenario=scenario, gateway=gateway, token=token)


# --- The failures: each is there within the context, and over after it ---


@contextmanager
def library_missing(site: Site) -> Iterator[None]:
    with library_away(site.library):
        yield


def playing(scenario: Scenario, *, restart: bool = False) -> Callable[[Site], AbstractContextManager[None]]:
    @contextmanager
    def cause(site: Site) -> Iterator[None]:
        site.play(scenario)
        if restart:
            cluster.get().restart("agent")
        try:
            yield
        finally:
            site.play(Scenario())
            # An agent that runs asks a lost device again after ten minutes.
            cluster.get().restart("agent")

    return cause


@contextmanager
def agent_hangs(_site: Site) -> Iterator[None]:
    pid = cluster.get().pid("agent")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        # One that was stopped for so long takes its driver for silent until it has read it again.
        cluster.get().restart("agent")


def stopped(component: str) -> Callable[[Site], AbstractContextManager[None]]:
    @contextmanager
    def cause(_site: Site) -> Iterator[None]:
        cluster.get().stop(component)
        try:
            yield
        finally:
            cluster.get().start(component)

    return cause


@contextmanager
def node_silent(site: Site) -> Iterator[None]:
    """The node's program ends, and its condition is what the node controller writes 200 s later."""
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    patch = json.dumps({"status": {"conditions": [ready]}})
    with stopped("local-node")(site):
        site.kubectl("patch", "node", NODE, "--subresource=status", "--patch", patch)
        yield


@contextmanager
def node_cordoned(site: Site) -> Iterator[None]:
    site.kubectl("cordon", NODE)
    try:
        yield
    finally:
        site.kubectl("uncordon", NODE)


@contextmanager
def node_drained(site: Site) -> Iterator[None]:
    site.kubectl("taint", "node", NODE, "ToBeDeletedByClusterAutoscaler=now:NoSchedule")
    try:
        yield
    finally:
        site.kubectl("taint", "node", NODE, "ToBeDeletedByClusterAutoscaler-")


@contextmanager
def device_cordoned(site: Site) -> Iterator[None]:
    site.machine("cordon", f"{NODE}:0")
    try:
        yield
    finally:
        site.machine("uncordon", f"{NODE}:0")


@contextmanager
def driver_of_another(site: Site) -> Iterator[None]:
    site.kubectl("create", "-f", "-", stdin=json.dumps(SLICE))
    try:
        yield
    finally:
        site.kubectl("delete", "resourceslice", "of-a-driver")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is wrong, what every view says of GPU 0, and how many GPUs are left.

    `words` are those of the sentence that do not name the node; the extender says them of all nodes of the cause.
    Where `stale`, nothing takes work away, and every view says that its figures are old.
    """

    name: str
    cause: Callable[[Site], AbstractContextManager[None]]
    says: str = ""
    words: str = ""
    closed_by: str = ""
    left: int = 0
    stale: bool = False


NOT_LOADED: Final = Scenario(answers=[("*", -1, DRIVER_NOT_LOADED)])
GONE: Final = Failure(
    name="gone at run time", cause=playing(NOT_LOADED), closed_by="DriverUnreadable",
    says="NVML: driver not loaded on node local", words="NVML: driver not loaded",
)  # fmt: skip
_LIBRARIES: Final = (
    "no vendor's library can be loaded (libnvidia-ml.so.1, libamd_smi.so, libze_loader.so.1, libdcmi.so)"
)
_HINT: Final = "; the vendor's driver installs it; without it, jobs that ask no GPU run"
OTHERS: Final = (
    Failure(
        name="library missing", cause=library_missing, closed_by="DriverUnreadable",
        says=f"{_LIBRARIES} on node local{_HINT}", words=f"{_LIBRARIES}{_HINT}",
    ),
    Failure(
        name="driver not loaded", cause=playing(NOT_LOADED, restart=True), closed_by="DriverUnreadable",
        says="NVML: driver not loaded on node local", words="NVML: driver not loaded",
    ),
    Failure(
        name="one device lost", cause=playing(Scenario(answers=[("*", 0, GPU_IS_LOST)])), closed_by="Unhealthy",
        says="GPU 0 on node local is unhealthy: GpuIsLost", words="GPU is unhealthy: GpuIsLost", left=1,
    ),
    Failure(name="report stale", cause=agent_hangs, left=2, stale=True),
    Failure(name="agent dead", cause=stopped("agent"), left=2, stale=True),
    Failure(
        name="node not ready", cause=node_silent, closed_by="NodeNotReady",
        says="node local is not ready", words="node is not ready",
    ),
    Failure(
        name="node cordoned", cause=node_cordoned, closed_by="NodeCordoned",
        says="node local is cordoned", words="node is cordoned",
    ),
    Failure(
        name="node drained", cause=node_drained, closed_by="NodeDrained",
        says="node local is being drained: taint ToBeDeletedByClusterAutoscaler",
        words="node is being drained: taint ToBeDeletedByClusterAutoscaler",
    ),
    Failure(
        name="device cordoned", cause=device_cordoned, closed_by="Cordoned",
        says="GPU 0 on node local is cordoned", words="not cordoned", left=1,
    ),
    Failure(
        name="DRA conflict", cause=driver_of_another, closed_by="ServedTwice",
        says="node local: both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs",
        words="both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs",
    ),
)  # fmt: skip


# --- The views: how many GPUs each has left, and why GPU 0 is none of them ---

Said = tuple[int, str]
NEED: Final = re.compile(r"Need 2 GPUs, only (\d) available: ([^\n]*)")


def by_ginfo(site: Site) -> Said:
    text = site.machine("ginfo")
    status = next(line for line in text.splitlines() if line.startswith("  Status: ")).removeprefix("  Status: ")
    return int(text.partition("Available GPUs: ")[2].split()[0]), _why(status)


def by_json(site: Site) -> Said:
    return _of_rows(json.loads(site.machine("ginfo", "-o", "json"))["nodes"][0]["devices"])


def by_top(site: Site) -> Said:
    lines = site.machine("top").splitlines()
    return int(lines[0].partition(" held, ")[2].split()[0]), _why(re.split(r"  +", lines[3])[-1])


def _why(status: str) -> str:
    """The sentence of a status in words."""
    return "" if status == "Available" else status.removeprefix("Unavailable: ")


def by_v1(site: Site) -> Said:
    rows = site.rest("/api/v1/gpu/status")["available_nodes"]
    (node,) = site.rest("/api/v1/gpu/monitoring")["nodes"]
    return sum(row["available_gpus"] for row in rows), node["devices"][0]["message"]


def by_v2(site: Site) -> Said:
    found = site.rest("/api/v2/resources/gpu")
    left = sum(not device["message"] for device in found["devices"])
    assert found["available"] == (left > 0)
    return left, _first(found["devices"])


def by_v3_devices(site: Site) -> Said:
    return _of_rows(site.rest("/api/v3/devices")["items"])


def by_v3_node(site: Site) -> Said:
    node = site.rest(f"/api/v3/nodes/{NODE}")
    left, message = _of_rows(node["devices"])
    # Of the node itself it is the same, unless a device is left.
    assert (node["takesWork"], node["message"]) == (left > 0, "" if left else message)
    return left, message


def by_console(site: Site) -> Said:
    """What the console's pages are made of."""
    (node,) = site.rest("/api/v3/snapshot")["nodes"]
    return _of_rows(node["devices"])


def _of_rows(devices: list[dict[str, Any]]) -> Said:
    assert all(each["available"] == each["takesWork"] for each in devices)
    return sum(each["available"] for each in devices), _first(devices)


def _first(devices: list[dict[str, Any]]) -> str:
    """What is said of GPU 0; of a queue that has just started, none is reported or numbered yet."""
    return devices[0]["message"] if devices else "none yet"


def by_validate(site: Site) -> Said:
    found = site.rest("/api/v1/gpu/validate", body={"gpu_count": 2})
    if found["valid"]:
        return 2, ""
    assert "NodeUnhealthy" in found["reason"]
    most = re.fullmatch(r"ask for at most (\d) GPUs: as many are free on one node", found["suggestion"])
    sentence = found["message"].partition("available: ")[2]
    assert most or found["suggestion"] == f"no GPU takes work: {sentence}"
    return int(most[1]) if most else 0, sentence


def by_dry_run(site: Site) -> Said:
    text = site.machine("gbatch", "--dry-run", "--gpus", "2", "true")
    return _of_shortage(text, ends=". No end that is known makes room for it.")


def by_explain(site: Site) -> Said:
    return _of_shortage(site.machine("explain", "request", "2").partition("\n\n")[0])


def by_queue(site: Site) -> Said:
    job = site.machine.submit("--gpus", "2", "true")
    try:
        until(lambda: has_ended(site.machine.show(job)) or "NodeUnhealthy" in site.machine("gqueue"))
        return _of_shortage(site.machine("gqueue", "-f", "NODELIST"), ends=")")
    finally:
        site.machine.run("gcancel", job)
        site.machine.ended(job)


def _of_shortage(text: str, *, ends: str = "") -> Said:
    found = NEED.search(text)
    return (int(found[1]), found[2].removesuffix(ends)) if found else (2, "")


VIEWS: Final[Mapping[str, Callable[[Site], Said]]] = {
    "ginfo": by_ginfo, "ginfo -o json": by_json, "top": by_top, "v1": by_v1, "v2": by_v2, "v3 devices": by_v3_devices,
    "v3 node": by_v3_node, "console": by_console, "validate": by_validate, "dry run": by_dry_run,
    "explain": by_explain, "queue": by_queue,
}  # fmt: skip

# These speak of this machine where the others name its node.
FOR_PEOPLE: Final = frozenset({"ginfo", "dry run", "explain", "queue"})


def by_extender(site: Site) -> Said:
    """How many GPUs it places, and the words about GPU 0 that all nodes of the cause share."""
    left = max(count for count in range(3) if not count or not site.refusal(str(count)))
    return left, site.refusal("1@cuda:0")


def ages(site: Site) -> dict[str, bool]:
    """Whether each view with figures says that they are old."""
    (v1,) = site.rest("/api/v1/gpu/monitoring")["nodes"]
    (console,) = site.rest("/api/v3/snapshot")["nodes"]
    return {
        "ginfo": " ago)" in site.machine("ginfo"),
        "top": " ago)" in site.machine("top"),
        "v1": v1["devices"][0]["stale"],
        "v2": site.rest("/api/v2/resources/gpu")["devices"][0]["stale"],
        "v3 devices": site.rest("/api/v3/devices")["items"][0]["stale"],
        "v3 node": bool(site.rest(f"/api/v3/nodes/{NODE}")["stale"]),
        "console": console["devices"][0]["stale"],
        "explain": "promises alone count" in site.machine("explain", "request", "1"),
    }


def closed_devices(sandbox: Cluster) -> dict[str, int]:
    """The extender's metric: closed devices by cause."""
    found = yaml.safe_load(sandbox.prometheus.read_text(encoding="utf-8"))["scrape_configs"][0]["static_configs"]
    (target,) = next(each["targets"] for each in found if each["labels"]["component"] == "extender")
    text = credential.read(f"https://{target}/metrics", folder=sandbox.credential)
    counts = re.findall(r'^dovetail_extender_closed_devices\{cause="(\w+)"\} (\d+)', text, flags=re.MULTILINE)
    return {cause: int(count) for cause, count in counts if int(count)}


def agree(site: Site, failure: Failure) -> None:
    """Return once every view says the same: what they show follows the API server in its own time."""
    for name, view in VIEWS.items():
        sentence = this_machine.said(failure.says) if name in FOR_PEOPLE else failure.says
        _says(name, partial(view, site), wanted=(failure.left, sentence))
    _says("extender", lambda: by_extender(site)[0], wanted=failure.left)
    assert failure.words in by_extender(site)[1]
    closed = {failure.closed_by: 2 - failure.left} if failure.closed_by else {}
    _says("metrics", lambda: closed_devices(cluster.get()), wanted=closed)
    _says("ages", lambda: ages(site), wanted=dict.fromkeys(ages(site), failure.stale))


def _says(name: str, read: Callable[[], Any], *, wanted: Any) -> None:
    until(lambda: read() == wanted, what=lambda: f"{name}: {read()} instead of {wanted}")
    print(f"  {name}: {wanted}")


@pytest.mark.parametrize(
    "failure",
    [GONE, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)],
    ids=lambda failure: failure.name,
)
def test_every_view_says_the_same_of_a_failure(site: Site, failure: Failure) -> None:
    print(f"\n{failure.name}")
    until(lambda: by_v3_devices(site) == (2, ""), what=lambda: str(by_v3_devices(site)))
    with failure.cause(site):
        agree(site, failure)
