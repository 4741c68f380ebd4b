"""The image that every node needs, built here because there is no registry: busybox alone.

It holds a pod's namespaces (the `pause` container) and is the small image for experiments. `images/build.sh` builds the
product's own images.

A module of its own: the part of a node that needs `buildah`; `node` puts the parts together.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dovetail_sandbox.realnode.capability import BUSYBOX
from dovetail_sandbox.realnode.commands import call

BUSYBOX_IMAGE = "dovetail.local/env:dev"
BUILDAH = ("buildah", "--storage-driver=vfs")


def write_busybox_archive(archive: Path) -> None:
    """Write the image to `archive` in the format of `ctr images import`.

    Its command only sleeps.
    """
    settings = ("--cmd", '["/bin/sleep","infinity"]', "--env", "PATH=/bin")
    _write_archive(archive, image=BUSYBOX_IMAGE, fill=_write_tree, settings=settings)


def write_program_archive(archive: Path, *, image: str, program: Path) -> None:
    """Write an image that consists of one program without libraries, such as kube-scheduler."""
    command = program.name

    def fill(tree: Path) -> None:
        (tree / "bin").mkdir(parents=True)
        shutil.copy(program, tree / "bin" / command)

    _write_archive(archive, image=image, fill=fill, settings=("--env", "PATH=/bin"))


def _write_archive(archive: Path, *, image: str, fill: Callable[[Path], None], settings: Sequence[str]) -> None:
    # Storage of its own: nothing stays in the user's storage, and two builds cannot conflict.
    with tempfile.TemporaryDirectory(prefix="dovetail-image-") as folder:
        tree = Path(folder) / "tree"
        fill(tree)
        storage = (*BUILDAH, f"--root={folder}/storage", f"--runroot={folder}/run")
        container = call(*storage, "from", "scratch").strip()
        call(*storage, "copy", "--quiet", container, tree, "/")
        call(*storage, "config", *settings, container)
        call(*storage, "commit", "--quiet", container, f"docker-archive:{archive}:{image}")


def _write_tree(tree: Path) -> None:
    for folder in ("bin", "etc", "tmp"):
        (tree / folder).mkdir(parents=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    shutil.copy(BUSYBOX, tree / "bin" / "busybox")
    for applet in call(BUSYBOX, "--list").split():
        if applet != "busybox":
            (tree / "bin" / applet).symlink_to("busybox")
