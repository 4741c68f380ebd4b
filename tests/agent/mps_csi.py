"""The volume driver of MPS as a process, in a mount namespace that outlives it, as a node's does."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from msgspec.structs import replace as with_fields

from dovetail import names
from dovetail_agent.kubelet.v1 import csi_pb2 as csi
from dovetail_agent.kubelet.v1 import pluginregistration_pb2 as registration
from dovetail_agent.mps import pod_modes
from tests.agent.mps_machine import fractional

# A user that is not root here is root of a namespace of its own.
_USER = () if os.geteuid() == 0 else ("--user", "--map-root-user")
_USER_OF = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
HOLD = ("unshare", *_USER, "--mount", "--propagation=private", "--")


def incapable() -> str:
    """Why this machine cannot mount, even in a namespace; empty where it can."""
    done = subprocess.run([*HOLD, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


@dataclass(kw_only=True)
class Driver:
    """One node: `folder` has kubelet's folder and MPS's; `holder` keeps its mount namespace."""

    folder: Path
    holder: subprocess.Popen[bytes]
    options: tuple[str, ...] = ()
    process: subprocess.Popen[str] = field(init=False)

    @property
    def socket(self) -> Path:
        return self.folder / "kubelet" / "plugins_registry" / f"{names.MPS_DRIVER}.sock"

    def start(self) -> None:
        """Run it until it listens."""
        enter = ("nsenter", *_USER_OF, "--mount", f"--target={self.holder.pid}", "--")
        self.process = subprocess.Popen(
            [
                *enter,
                *(sys.executable, "-m", "dovetail_agent.mps.volume_driver.main", "--node=here"),
                *(f"--directory={self.folder / 'mps'}", f"--kubelet={self.folder / 'kubelet'}"),
                *(f"--staging={self.folder / 'staging'}", *self.options),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        end = time.monotonic() + 60
        while not self._listens():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, "the driver does not listen"
            time.sleep(0.05)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def kill(self) -> None:
        """As the kernel does when memory ends: its socket stays."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        """End it in good order."""
        self.process.terminate()
        self.process.communicate()
        return self.process.returncode

    def tell(self, *uids: str, mode: str = "Fractional") -> None:
        """Let the supervisor's list have these pods, and no others."""
        tenants = [with_fields(fractional(0, uid=uid), mode=mode or "Exclusive", name=f"pod-{uid}") for uid in uids]
        if not mode:
            tenants = [with_fields(each, devices=[]) for each in tenants]
        pod_modes.write(pod_modes.path_in(self.folder / "mps"), tenants=tenants)

    def target(self, uid: str, *, folder: str = "pipe") -> Path:
        """Where kubelet wants a volume of a pod; its parent is there, as kubelet makes it."""
        target = (
            self.folder
            / "kubelet"
            / "pods"
            / uid
            / "volumes"
            / "kubernetes.io~csi"
            / f"dovetail-mps-{folder}"
            / "mount"
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def inside(self, path: Path) -> Path:
        """The path as the node has it."""
        return Path(f"/proc/{self.holder.pid}/root{path}")

    def mount(self, source: Path, *, at: Path) -> None:
        """Mount a folder there, as somebody else on the node."""
        enter = ("nsenter", *_USER_OF, "--mount", f"--target={self.holder.pid}", "--")
        subprocess.run([*enter, "mount", "--bind", str(source), str(at)], check=True)

    def flags(self, path: Path) -> set[str]:
        """The options with which something is mounted at `path`; empty where nothing is."""
        lines = Path(f"/proc/{self.holder.pid}/mountinfo").read_text().splitlines()
        found = [line.split()[5] for line in lines if line.split()[4] == str(path)]
        assert len(found) <= 1, f"mounted {len(found)} times"
        return set(found[0].split(",")) if found else set()

    async def call(self, method: str, request: Any, reply: type[Any]) -> Any:
        async with Channel(path=str(self.socket)) as channel:
            return await UnaryUnaryMethod(channel, method, type(request), reply)(request)

    async def publish(self, target: Path, *, uid: str, folder: str = "pipe", **context: str) -> None:
        """As kubelet does; `context` is written over what it says."""
        prefix = "csi.storage.k8s.io/"
        said = {"pod.uid": uid, "pod.name": f"pod-{uid}", "pod.namespace": "default", "ephemeral": "true"}
        whole = {"folder": folder} | {f"{prefix}{key}": value for key, value in said.items()} | context
        request = csi.NodePublishVolumeRequest(volume_id="csi-1", target_path=str(target), volume_context=whole)
        await self.call("/csi.v1.Node/NodePublishVolume", request, csi.NodePublishVolumeResponse)

    async def unpublish(self, target: Path) -> None:
        request = csi.NodeUnpublishVolumeRequest(volume_id="csi-1", target_path=str(target))
        await self.call("/csi.v1.Node/NodeUnpublishVolume", request, csi.NodeUnpublishVolumeResponse)

    async def register(self, *, taken: bool, error: str = "") -> registration.PluginInfo:
        """As kubelet does when it finds the socket."""
        prefix = "/pluginregistration.Registration"
        info: registration.PluginInfo = await self.call(
            f"{prefix}/GetInfo", registration.InfoRequest(), registration.PluginInfo
        )
        status = registration.RegistrationStatus(plugin_registered=taken, error=error)
        await self.call(f"{prefix}/NotifyRegistrationStatus", status, registration.RegistrationStatusResponse)
        return info


@contextmanager
def node(*options: str) -> Iterator[Driver]:
    """A node with the driver at work, which ends with this and leaves nothing."""
    folder = Path(tempfile.mkdtemp(prefix="dt-", dir="/tmp"))  # a socket's path has 107 bytes at most
    for name in ("kubelet/plugins_registry", "kubelet/pods", "mps/clients", "mps/shm", "mps/state", "staging"):
        (folder / name).mkdir(parents=True)
    holder = subprocess.Popen([*HOLD, "cat"], stdin=subprocess.PIPE)
    driver = Driver(folder=folder, holder=holder, options=options)
    try:
        _ready(holder)
        driver.start()
        yield driver
    finally:
        if driver.process.poll() is None:
            driver.stop()
        holder.communicate()
        shutil.rmtree(folder)


def _ready(holder: subprocess.Popen[bytes]) -> None:
    """Until the namespace is there: the program that is run in it has been."""
    end = time.monotonic() + 60
    while Path(f"/proc/{holder.pid}/comm").read_text().strip() != "cat":
        assert time.monotonic() < end, "no mount namespace"
        time.sleep(0.01)
