"""Checks whether this machine can run a real node, without changing anything."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from dovetail_sandbox.realnode.commands import succeeds

# A program, and the Debian package that has it.
PROGRAMS = {
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "openssl": "openssl",
    "buildah": "buildah",
}
CNI_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
CNI_PLUGINS = ("ptp", "host-local", "loopback")
BUSYBOX = Path("/bin/busybox")
CAP_SYS_ADMIN = 21


def capable(*, busybox: Path = BUSYBOX, plugin_folders: Sequence[Path] = CNI_PLUGIN_FOLDERS) -> str | None:
    """Return None if a real node can run here, otherwise a sentence with reason and fix."""
    return _wrong_system() or _missing_packages(busybox=busybox, plugin_folders=plugin_folders) or _missing_in_kernel()


def cni_plugins(folders: Sequence[Path] = CNI_PLUGIN_FOLDERS) -> Path | None:
    """Return the folder with every CNI plugin that the node uses."""
    for folder in folders:
        if all((folder / plugin).exists() for plugin in CNI_PLUGINS):
            return folder
    return None


def _wrong_system() -> str | None:
    if sys.platform != "linux":
        return f"A real node needs Linux, and this is {sys.platform}."
    if os.geteuid() != 0:
        return "A real node needs root: kubelet and containerd mount, and make namespaces and cgroups."
    if not _has_capability(CAP_SYS_ADMIN):
        return "A real node needs CAP_SYS_ADMIN: in a container, run it with --privileged."
    return None


def _has_capability(number: int) -> bool:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> number & 1)


def _missing_packages(*, busybox: Path, plugin_folders: Sequence[Path]) -> str | None:
    missing = {program: package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if cni_plugins(plugin_folders) is None:
        missing[f"the CNI plugins {', '.join(CNI_PLUGINS)}"] = "containernetworking-plugins"
    if not is_static(busybox):
        missing["a static busybox"] = "busybox-static"
    if not missing:
        return None
    packages = " ".join(sorted(set(missing.values())))
    return f"A real node needs {', '.join(missing)}: apt-get install --no-install-recommends {packages}"


def is_static(program: Path) -> bool:
    """Whether an ELF program runs without libraries, so that an image can consist of it alone."""
    return program.exists() and b"/ld-linux" not in program.read_bytes() and b"/ld-musl" not in program.read_bytes()


def _missing_in_kernel() -> str | None:
    if not Path("/sys/fs/cgroup").is_mount():
        return "A real node needs cgroups mounted at /sys/fs/cgroup."
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        return "A real node needs the kernel's overlay file system: modprobe overlay."
    # In a namespace of its own, so that nothing is loaded or listed on the host.
    if not succeeds(["unshare", "--net", "nft", "add", "table", "ip", "dovetail-probe"]):
        return "A real node needs nftables in the kernel (5.13 or later), for kube-proxy."
    return None
