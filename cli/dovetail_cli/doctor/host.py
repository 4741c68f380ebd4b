"""Checks on a node itself: driver, container runtime, CDI, kubelet's socket, MPS, cgroups.

It only reads files, all below `root`, so that it can also run in a container that mounts the node's files.
"""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from dovetail import names
from dovetail.answers.doctor import CheckResult
from dovetail.cluster.picture import Unseen
from dovetail.decoding import UnreadableError, decode
from dovetail.query.doctor.findings import unknown
from dovetail_cli.doctor import frameworks

_CONTAINERD: Final = (
    "etc/containerd/config.toml",
    "etc/containerd/conf.d/*.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)
_CRIO: Final = ("etc/crio/crio.conf", "etc/crio/crio.conf.d/*")
_TOOLKIT: Final = (
    "etc/nvidia-container-runtime/config.toml",
    "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
)
_CDI: Final = ("etc/cdi", "var/run/cdi", "run/cdi")
_SOCKET: Final = "var/lib/kubelet/pod-resources/kubelet.sock"
_MPS: Final = "run/dovetail/mps/pipe/control"
_MPS_DRIVER: Final = f"var/lib/kubelet/plugins_registry/{names.MPS_DRIVER}.sock"
_DRIVER: Final = "proc/driver/nvidia/version"
_OTHERS: Final = ("dev/kfd", "dev/davinci_manager")
_NVIDIAS: Final = frozenset({"driver", "container-runtime", "toolkit", "cdi", "mps", "framework"})
_VERSION: Final = re.compile(r"Kernel Module[^\d]*(\d+\.\d+(?:\.\d+)?)")
_NVIDIA: Final = re.compile(r"nvidia")


def judge(root: Path = Path("/"), *, prefixes: Sequence[Path] = ()) -> Iterator[CheckResult]:
    """Check everything that the node's files show.

    `prefixes` are those of the Python environments to look into, in addition to the system's.
    """
    other = _other_vendor(root)
    if other:
        message = f"no driver of NVIDIA's; {other} is there: a vendor's plugin serves such a node"
        yield CheckResult(level="ok", check="driver", message=message)
    for name, check in (*_CHECKS, ("framework", partial(_frameworks, prefixes=prefixes))):
        if other and name in _NVIDIAS:
            continue
        try:
            yield from check(root)
        except PermissionError as error:
            unseen = Unseen(why=f"{error.filename} may not be read", missing=False)
            yield unknown(name, unseen=unseen)
        except (tomllib.TOMLDecodeError, UnreadableError, UnicodeDecodeError) as error:
            yield CheckResult(
                level="warning", check=name, message=f"a file of it cannot be understood: {error}",
                fix="look at it: the runtime may not understand it either",
            )  # fmt: skip


def _frameworks(root: Path, *, prefixes: Sequence[Path]) -> Iterator[CheckResult]:
    if driver := _driver_version(root):
        yield from frameworks.judge(root, driver_version=driver, prefixes=prefixes)


def _driver_version(root: Path) -> str:
    """The version of NVIDIA's driver, empty where it is not loaded."""
    path = root / _DRIVER
    found = _VERSION.search(path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1] if found else ""


def _other_vendor(root: Path) -> str:
    """The device file of AMD's or Huawei's driver, where NVIDIA's is not loaded; empty for none."""
    if (root / _DRIVER).exists():
        return ""
    return next((f"/{name}" for name in _OTHERS if (root / name).exists()), "")


def _driver(root: Path) -> Iterator[CheckResult]:
    path = root / _DRIVER
    cards = sorted(path.name for path in (root / "dev").glob("nvidia[0-9]*"))
    if not path.exists():
        fix = "install NVIDIA's driver and load it (modprobe nvidia), or leave the node to another vendor's plugin"
        yield CheckResult(level="error", check="driver", message="NVIDIA's driver is not loaded", fix=fix)
        return
    if not cards:
        fix = "nvidia-modprobe -u -c=0, or look into dmesg for NVRM"
        yield CheckResult(level="error", check="driver", message="it is loaded, but /dev has no nvidia0", fix=fix)
        return
    message = f"NVIDIA {_driver_version(root) or 'of an unknown version'}, {', '.join(cards)}"
    yield CheckResult(level="ok", check="driver", message=message)


def _runtime(root: Path) -> Iterator[CheckResult]:
    """Check the default runtime: NVIDIA's gives devices to any container that sets a variable."""
    configs = [
        *_read(root, patterns=_CONTAINERD, parse=tomllib.loads),
        *_read(root, patterns=_CRIO, parse=tomllib.loads),
    ]
    configs += _read(root, patterns=("etc/docker/daemon.json",), parse=lambda text: decode(text, as_type=Any))
    if not configs:
        unseen = Unseen(why="no configuration of containerd, CRI-O or Docker is where it is looked for", missing=True)
        yield unknown("container-runtime", unseen=unseen)
        return
    defaults = {(path, value) for path, config in configs for value in _values(config, keys=_DEFAULTS)}
    wrong = sorted(f"{path}: {value}" for path, value in defaults if _NVIDIA.search(value))
    if wrong:
        message = f"NVIDIA's runtime is the default ({wrong[0]}): a container without an allocated GPU may see all GPUs"
        fix = "make runc the default there, restart it, and set agent.runtimeClassName=nvidia in the chart"
        yield CheckResult(level="error", check="container-runtime", message=message, fix=fix)
    handlers = {name for _, config in configs for name in _handlers(config)}
    if any(_NVIDIA.search(name) for name in handlers):
        if not wrong:
            yield CheckResult(level="ok", check="container-runtime", message="nvidia is there, and is not the default")
    else:
        message = "no runtime named nvidia is configured: pods of the RuntimeClass nvidia do not start"
        fix = "nvidia-ctk runtime configure --runtime=containerd, and restart it; where NVIDIA's GPU operator looks "
        fix += "after the node, cdi.nriPluginEnabled=false in its ClusterPolicy"
        yield CheckResult(level="error", check="container-runtime", message=message, fix=fix)


_DEFAULTS: Final = frozenset({"default_runtime_name", "default_runtime", "default-runtime"})


def _handlers(config: Any) -> Iterator[str]:
    for runtimes in _values(config, keys=frozenset({"runtimes"})):
        yield from runtimes if isinstance(runtimes, dict) else ()


def _toolkit(root: Path) -> Iterator[CheckResult]:
    configs = _read(root, patterns=_TOOLKIT, parse=tomllib.loads)
    if not configs:
        fix = "install nvidia-container-toolkit, or let NVIDIA's GPU operator bring it"
        yield CheckResult(level="warning", check="toolkit", message="NVIDIA's container toolkit is not there", fix=fix)
        return
    path, config = configs[0]
    if config.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True) is False:
        message = f"{path}: unprivileged containers may not ask by NVIDIA_VISIBLE_DEVICES, so managed pods see no GPU"
        fix = "set accept-nvidia-visible-devices-envvar-when-unprivileged = true, or do not manage this node "
        fix += "(docs/vendor.md)"
        yield CheckResult(level="error", check="toolkit", message=message, fix=fix)
        return
    yield from _other_ways(path, config=config)
    mode = config.get("nvidia-container-runtime", {}).get("mode", "auto")
    if mode == "cdi" and not _specifications(root):
        # In this mode the runtime takes the variable's values for names of CDI devices, and starts no container whose
        # device no specification has.
        message = f"{path}: mode cdi finds devices in CDI specifications alone, and there is none of NVIDIA's"
        fix = "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml, or set "
        fix += 'mode = "auto" in [nvidia-container-runtime]'
        yield CheckResult(level="error", check="toolkit", message=message, fix=fix)
    else:
        yield CheckResult(level="ok", check="toolkit", message=f"mode {mode}, and NVIDIA_VISIBLE_DEVICES is heard")


def _specifications(root: Path) -> list[str]:
    """Names of the files by which NVIDIA's devices are CDI devices."""
    return sorted({path.name for folder in _CDI for path in (root / folder).glob("*nvidia*") if path.is_file()})


def _other_ways(path: str, *, config: dict[str, Any]) -> Iterator[CheckResult]:
    """Check for ways in which the toolkit gives out devices besides the variable that we set."""
    if config.get("accept-nvidia-visible-devices-as-volume-mounts", False) is True:
        message = f"{path}: a pod may name devices by mounts too, which policy dovetail-pods alone refuses"
        fix = "set accept-nvidia-visible-devices-as-volume-mounts = false, unless a device plugin lists devices so"
        yield CheckResult(level="warning", check="toolkit", message=message, fix=fix)
    if variable := config.get("swarm-resource"):
        message = f"{path}: a pod may name devices by the variable {variable} too, which nothing refuses"
        fix = "remove swarm-resource, which is for Docker Swarm"
        yield CheckResult(level="error", check="toolkit", message=message, fix=fix)


def _cdi(root: Path) -> Iterator[CheckResult]:
    if specs := _specifications(root):
        message = f"{', '.join(specs)}: what a device plugin injects by these, no variable takes back"
        fix = "nothing, as long as no device plugin serves this node; keep it off managed nodes"
        yield CheckResult(level="warning", check="cdi", message=message, fix=fix)
    else:
        yield CheckResult(level="ok", check="cdi", message="no specification of NVIDIA's devices is in the way")


def _kubelet(root: Path) -> Iterator[CheckResult]:
    path = root / _SOCKET
    try:
        there = stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:
        there = False
    if not there:
        message = f"/{_SOCKET} is not there: on nodes of a vendor's plugin it is unknown which pod has which GPU"
        fix = "look whether kubelet runs, and where its --root-dir is (agent.podResources.path in the chart)"
        yield CheckResult(level="warning", check="pod-resources", message=message, fix=fix)
        return
    may = "and may be asked from here" if os.access(path, os.W_OK) else "for root alone, as which the agent asks it"
    yield CheckResult(level="ok", check="pod-resources", message=f"kubelet's socket is there, {may}")


def _mps(root: Path) -> Iterator[CheckResult]:
    if (root / _MPS).exists() and (root / _MPS_DRIVER).exists():
        yield CheckResult(
            level="ok", check="mps", message="its control daemon's pipe and the volume driver's socket are there"
        )
    elif (root / _MPS).exists():
        message = f"no volume driver of MPS (/{_MPS_DRIVER}): pods with a share of a device do not start"
        fix = "look at the node's pod of dovetail-mps-csi (docs/mps.md); where kubelet's --root-dir is another, set "
        yield CheckResult(level="error", check="mps", message=message, fix=f"{fix}mps.kubelet in the chart")
    else:
        message = f"no MPS daemon of Dovetail's (/{_MPS}): shares of memory and compute are advisory"
        fix = "set mps.enabled=true in the chart (docs/enforcement.md)"
        yield CheckResult(level="warning", check="mps", message=message, fix=fix)


def _cgroups(root: Path) -> Iterator[CheckResult]:
    folder = root / "sys/fs/cgroup"
    if (folder / "cgroup.controllers").exists():
        yield CheckResult(level="ok", check="cgroups", message="version 2: tenants can be frozen in turns")
    elif (folder / "freezer").is_dir():
        yield CheckResult(
            level="ok", check="cgroups", message="version 1 with the freezer: tenants can be frozen in turns"
        )
    else:
        message = "no freezer under /sys/fs/cgroup: tenants cannot take turns"
        fix = "mount cgroup v2 (systemd.unified_cgroup_hierarchy=1 on the kernel's command line)"
        yield CheckResult(level="warning", check="cgroups", message=message, fix=fix)


def _read(root: Path, *, patterns: Iterable[str], parse: Callable[[str], Any]) -> list[tuple[str, Any]]:
    """The files that there are, parsed, by their paths on the node."""
    paths = [path for pattern in patterns for path in sorted(root.glob(pattern)) if path.is_file()]
    return [(f"/{path.relative_to(root)}", parse(path.read_text(encoding="utf-8"))) for path in paths]


def _values(config: Any, *, keys: frozenset[str]) -> Iterator[Any]:
    """The values of these keys anywhere in a configuration: their place depends on the version."""
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        if key in keys:
            yield value
        yield from _values(value, keys=keys)


_CHECKS: Final = (
    ("driver", _driver), ("container-runtime", _runtime), ("toolkit", _toolkit), ("cdi", _cdi),
    ("pod-resources", _kubelet), ("mps", _mps), ("cgroups", _cgroups),
)  # fmt: skip
