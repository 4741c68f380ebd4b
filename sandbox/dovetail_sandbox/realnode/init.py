"""The node's first process: prepares namespaces, starts the programs, ends with the first.

It runs as PID 1 of a PID namespace (`python -m dovetail_sandbox.realnode.init ROOT CGROUP FOLDERS ADDRESS`), so its end
also ends every process, mount and interface of the node.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dovetail_sandbox.processes import processes
from dovetail_sandbox.realnode import cgroups
from dovetail_sandbox.realnode.commands import call, succeeds
from dovetail_sandbox.realnode.config import KERNEL_SETTINGS
from dovetail_sandbox.realnode.layout import CONTAINERD_SOCKET, INNER, NODE_NAME

log = logging.getLogger("real-node")

# Folders of the node below its root, and the paths where its programs expect them.
BOUND = {"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet", "pods": "/var/log/pods"}
PROGRAMS = {
    "containerd": ("containerd", f"--config={INNER}/etc/containerd.toml"),
    "kube-proxy": ("kube-proxy", f"--config={INNER}/etc/kube-proxy.yaml"),
    "coredns": ("coredns", f"-conf={INNER}/etc/Corefile"),
    "kubelet": (
        "kubelet",
        f"--config={INNER}/etc/kubelet.yaml",
        f"--kubeconfig={INNER}/etc/kubelet.kubeconfig",
        f"--hostname-override={NODE_NAME}",
    ),
}
CONNECT_DEADLINE_S = 30.0
CONTAINERD_DEADLINE_S = 60.0


def main() -> None:
    root, cgroup, folders, address = Path(sys.argv[1]), *sys.argv[2:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))  # PID 1 has no default action for them
    # Containers of other users read what kubelet makes. The root, with all of it, is this user's alone.
    os.umask(0o022)
    # After the mounts: a process that finds this one in its cgroup finds complete namespaces.
    mount(root)
    cgroups.join(cgroup)
    call("hostname", NODE_NAME)
    _wait("the link to the host", ready=connected, deadline_s=CONNECT_DEADLINE_S)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    os.environ["PATH"] = f"{folders}:{os.environ['PATH']}"
    sys.exit(supervise(dict(start_all(address))))


def mount(root: Path) -> None:
    """Mount the node's own folders over the host's standard paths.

    The host's other files stay visible.
    """
    call("mount", "--make-rshared", "/")
    call("mount", "--bind", root, "/mnt")  # keeps the root reachable, which later mounts could cover
    call("mount", "-t", "tmpfs", "tmpfs", "/run")
    INNER.mkdir()
    call("mount", "--rbind", "/mnt", INNER)
    call("umount", "/mnt")
    for folder in ("/var/lib", "/var/log"):
        _writable_copy(folder)
    for name, target in BOUND.items():
        (INNER / name).mkdir(exist_ok=True)
        Path(target).mkdir(parents=True, exist_ok=True)
        call("mount", "--bind", INNER / name, target)
    for setting in KERNEL_SETTINGS:
        call("mount", "--bind", INNER / "etc" / "sysctl" / setting, Path("/proc/sys") / setting)


def _writable_copy(folder: str) -> None:
    """Redirect the node's writes below `folder` from the host's files to its own memory."""
    upper, work = (Path("/run/overlay") / folder.strip("/").replace("/", "-") / part for part in ("upper", "work"))
    for path in (upper, work):
        path.mkdir(parents=True)
    call("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", folder)


def connected() -> bool:
    """Whether the host has given this namespace its interface and route."""
    return bool(call("ip", "route", "show", "default"))


def start_all(address: str) -> Iterator[tuple[int, str]]:
    """Start the programs in order, and yield each PID with its name."""
    # Without its address, kubelet asks the host's name server, which this network does not reach.
    programs = PROGRAMS | {"kubelet": (*PROGRAMS["kubelet"], f"--node-ip={address}")}
    for name, argv in programs.items():
        # Not a Popen, which takes the status of a child that ends at once before `supervise` can.
        output = processes.output_to(str(INNER / "log" / f"{name}.log"))
        yield os.posix_spawnp(argv[0], argv, os.environ, file_actions=output, setsigdef=[signal.SIGPIPE]), name
        if name == "containerd":
            _wait("containerd", ready=_containerd_answers, deadline_s=CONTAINERD_DEADLINE_S)
            for archive in sorted((INNER / "images").glob("*.tar")):
                call("ctr", "--namespace=k8s.io", "images", "import", archive)


def _containerd_answers() -> bool:
    return Path(CONTAINERD_SOCKET).exists() and succeeds(["ctr", "version"])


def supervise(programs: dict[int, str]) -> int:
    """Reap processes of this namespace. Return 1 as soon as one of the node's programs ends."""
    while True:
        pid, status = os.wait()
        if name := programs.get(pid):
            log.error("%s ended with status %s", name, os.waitstatus_to_exitcode(status))
            return 1


def _wait(what: str, *, ready: Callable[[], bool], deadline_s: float) -> None:
    limit = time.monotonic() + deadline_s
    while not ready():
        if time.monotonic() > limit:
            log.error("%s: not there after %g s", what, deadline_s)
            sys.exit(1)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
