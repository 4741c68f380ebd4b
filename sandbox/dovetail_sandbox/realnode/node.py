"""Starts and stops a sandbox's real node: one detached process with namespaces of its own.

No state is kept about a running node. Its names follow from the state directory (layout.py), and its processes are
those in its cgroup (cgroups.py). So a stop works from any state, also after an incomplete start.
"""

import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail_sandbox.realnode import capability, cgroups, config, credentials, images, network, objects
from dovetail_sandbox.realnode.commands import call, succeeds
from dovetail_sandbox.realnode.errors import NodeFailedError, NotCapableError, RealNodeError
from dovetail_sandbox.realnode.layout import NODE_NAME, Layout, NodeNetwork

BINARIES = ("kubectl", "kubelet", "kube-proxy", "coredns", "containerd", "containerd-shim-runc-v2", "ctr")
ENDED = re.compile(r"(\S+) ended with status -?\d+")  # as init.py writes it
NAMESPACES_DEADLINE_S = 20.0
READY_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """What the node needs of the sandbox that it joins."""

    kubeconfig: Path  # an administrator's
    ca_cert: Path
    ca_key: Path
    api_port: int  # where kube-apiserver listens, on all of the host's addresses
    binaries: Mapping[str, Path]  # by name, at least those in BINARIES


def start(state_dir: Path, *, control_plane: ControlPlane, say: Callable[[str], None]) -> None:
    """Start the node, and return when it is Ready. Removes what an earlier start left first.

    Raises:
        NotCapableError: this machine cannot run it.
        RealNodeError: it did not start. Everything is removed, and the text has the end of the log.
    """
    if reason := capability.capable():
        raise NotCapableError(reason)
    stop(state_dir)
    layout = Layout.for_state_dir(state_dir)
    try:
        say("real node: certificates, configuration and its image")
        block = network.choose(taken=network.host_routes(), first=secrets.randbelow(256))
        _write_files(layout, block=block, control_plane=control_plane)
        _register(control_plane, block=block)
        say("real node: containerd, kube-proxy, CoreDNS and kubelet")
        pid = _spawn(layout, block=block, binaries=control_plane.binaries)
        network.connect(layout, network=block, node_pid=pid)
        _wait_until_ready(layout, control_plane=control_plane)
    except BaseException:  # an interrupt leaves nothing behind either
        stop(state_dir)
        raise
    say(f"real node: {NODE_NAME} is Ready")


def stop(state_dir: Path) -> None:
    """End the node and remove everything that it has on the host. Does nothing without a node."""
    layout = Layout.for_state_dir(state_dir)
    if not layout.root.exists():  # it is made first and removed last; a machine without nodes need not have `ip`
        return
    cgroups.end(layout.cgroup)
    network.disconnect(layout)
    shutil.rmtree(layout.root)


def running(state_dir: Path) -> bool:
    """Whether the node's first process, and so all its programs, runs."""
    return bool(cgroups.pids(Layout.for_state_dir(state_dir).cgroup))


def trouble(state_dir: Path) -> str | None:
    """Return why a started node no longer runs, with the end of a log; None while it runs."""
    layout = Layout.for_state_dir(state_dir)
    if cgroups.pids(layout.cgroup):
        return None
    return str(_ended(layout))


def import_images(state_dir: Path, *archives: Path, ctr: Path) -> None:
    """Load image archives (`docker save` format) into the running node's containerd.

    Raises `RealNodeError` if it does not run.
    """
    pid = cgroups.first(Layout.for_state_dir(state_dir).cgroup)
    if pid is None:
        raise RealNodeError("The real node is not running: start the sandbox with --real-node.")
    for archive in archives:
        with archive.open("rb") as stream:
            call(
                *("nsenter", "--mount", f"--target={pid}", ctr),
                *("--namespace=k8s.io", "images", "import", "-"),
                stdin=stream,
            )


def _register(control_plane: ControlPlane, *, block: NodeNetwork) -> None:
    """Write the objects. The Node is recreated: an earlier start's Node would still be Ready."""
    kubectl = _kubectl(control_plane)
    call(*kubectl, "delete", "node", NODE_NAME, "--ignore-not-found")
    call(*kubectl, "apply", "--server-side", "--filename=-", stdin=objects.as_json(block))
    # kube-proxy starts first, and would otherwise ask for the address at growing intervals.
    call(*kubectl, "patch", "node", NODE_NAME, "--subresource=status", f"--patch={objects.node_status(block)}")


def _write_files(layout: Layout, *, block: NodeNetwork, control_plane: ControlPlane) -> None:
    layout.root.mkdir(parents=True, mode=0o700)
    for folder in (layout.etc, layout.log, layout.images):
        folder.mkdir()
    plugins = capability.cni_plugins()
    assert plugins, "capable() has found them"
    files = config.files(
        network=block,
        cgroup=layout.cgroup,
        cni_plugins=plugins,
        sandbox_image=images.BUSYBOX_IMAGE,
        snapshotter=_snapshotter(layout.root),
    )
    for name, text in files.items():
        path = layout.etc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    credentials.write(
        layout.etc,
        ca_cert=control_plane.ca_cert,
        ca_key=control_plane.ca_key,
        server=f"https://{block.host_address}:{control_plane.api_port}",
    )
    images.write_busybox_archive(layout.images / "busybox.tar")


def _snapshotter(root: Path) -> str:
    """Return the snapshotter: overlays where the disk allows, otherwise plain copies.

    A container's disk is an overlay itself and does not allow them.
    """
    return "native" if "overlay" in call("stat", "--file-system", "--format=%T", root) else "overlayfs"


def _spawn(layout: Layout, *, block: NodeNetwork, binaries: Mapping[str, Path]) -> int:
    """Start the node's first process in its own namespaces.

    Return its PID once they are complete.
    """
    cgroups.create(layout.cgroup)
    folders = ":".join(str(binaries[name].parent) for name in BINARIES)
    arguments = [str(layout.root), layout.cgroup, folders, str(block.node_address)]
    init = [sys.executable, "-m", "dovetail_sandbox.realnode.init", *arguments]
    namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
    log = layout.log / "init.log"
    with log.open("wb") as output:
        # setsid --fork: the node has no parent here, so it outlives the command that started it.
        subprocess.run(
            ["setsid", "--fork", "unshare", *namespaces, "--", *init],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=True,
            cwd="/",
        )
    limit = time.monotonic() + NAMESPACES_DEADLINE_S
    while (pid := cgroups.first(layout.cgroup)) is None:
        if time.monotonic() > limit:
            raise NodeFailedError("The real node's first process did not come up", log=log)
        time.sleep(0.05)
    return pid


def _wait_until_ready(layout: Layout, *, control_plane: ControlPlane) -> None:
    limit = time.monotonic() + READY_DEADLINE_S
    ready = ("wait", "--for=condition=Ready", f"node/{NODE_NAME}", "--timeout=2s")
    while not (succeeds([*_kubectl(control_plane), *ready]) and _routes_services(layout)):
        if not cgroups.pids(layout.cgroup):
            raise _ended(layout)
        if time.monotonic() > limit:
            raise NodeFailedError(
                f"Node {NODE_NAME} is not Ready after {READY_DEADLINE_S:g} s", log=layout.log / "kubelet.log"
            )


def _routes_services(layout: Layout) -> bool:
    """Whether kube-proxy has written its rules.

    Without them a container finds neither DNS nor the API.
    """
    pid = cgroups.first(layout.cgroup)
    nft = ("nft", "list", "table", "ip", "kube-proxy")
    return pid is not None and succeeds(["nsenter", "--net", f"--target={pid}", *nft])


def _ended(layout: Layout) -> NodeFailedError:
    """Return the program that ended first, as logged by the first process, or that one's end."""
    own = layout.log / "init.log"
    for line in own.read_text().splitlines() if own.exists() else []:
        if named := ENDED.search(line):
            return NodeFailedError(f"The real node ended: {named[0]}", log=layout.log / f"{named[1]}.log")
    return NodeFailedError("The real node ended", log=own)


def _kubectl(control_plane: ControlPlane) -> list[str]:
    return [str(control_plane.binaries["kubectl"]), f"--kubeconfig={control_plane.kubeconfig}"]
