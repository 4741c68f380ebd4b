"""Put layers together as an image archive: assemble.py NAME ARCHIVE LAYER.tar...

The form is that of `docker save`, which `ctr images import`, `kind load image-archive` and `docker load` read.
Prints the image's size beyond its first layer, the base, and ends with an error if that exceeds the limit. Runs on the
standard library alone, as images/lock.py does.
"""

import hashlib
import io
import json
import platform
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

# No name, no home: what runs here only reads the file system.
USER: Final = "65532:65532"
PATH: Final = "/opt/dovetail/bin:/usr/bin:/bin"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_MB: Final = 1_000_000
# Beyond the base. A larger image has something that its program does not need: look at the packages of the layer.
_LIMIT_MB: Final = 150


def program_of(name: str) -> str:
    """The program that the image of this name starts."""
    return "dovetail" if name == "cli" else f"dovetail-{name}"


def config_of(name: str, *, digests: Sequence[str]) -> dict[str, Any]:
    """The image's configuration, as the OCI image specification names its fields."""
    machine = platform.machine()
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {
            "User": USER,
            "Env": [f"PATH={PATH}", "PYTHONUNBUFFERED=1"],
            "Entrypoint": [f"/opt/dovetail/bin/{program_of(name)}"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created_by": "images/build.sh"} for _ in digests],
    }


def assemble(name: str, *, archive: Path, layers: Sequence[Path]) -> None:
    """Write the archive."""
    digests = []
    for layer in layers:
        with layer.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    config = json.dumps(config_of(name, digests=digests)).encode()
    manifest = {
        "Config": f"{hashlib.sha256(config).hexdigest()}.json",
        "RepoTags": [f"dovetail.local/{name}:dev"],
        "Layers": [f"{digest}.tar" for digest in digests],
    }
    with tarfile.open(archive, "w") as whole:
        _add(whole, name="manifest.json", content=json.dumps([manifest]).encode())
        _add(whole, name=str(manifest["Config"]), content=config)
        for path, digest in zip(layers, digests, strict=True):
            whole.add(path, arcname=f"{digest}.tar", filter=_neutral)


def _add(whole: tarfile.TarFile, *, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    whole.addfile(entry, io.BytesIO(content))


def _neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.mode = 0o644
    entry.uname = entry.gname = ""
    return entry


def main(arguments: Sequence[str]) -> None:
    """Assemble one image, and print its size."""
    name, archive, *layers = arguments
    paths = [Path(layer) for layer in layers]
    beyond_mb = sum(path.stat().st_size for path in paths[1:]) / _MB
    if beyond_mb > _LIMIT_MB:
        sys.exit(f"images: {name} would have {beyond_mb:.0f} MB beyond the base, and at most {_LIMIT_MB} are allowed")
    assemble(name, archive=Path(archive), layers=paths)
    print(f"images: dovetail.local/{name}:dev, {beyond_mb:.0f} MB beyond the base")


if __name__ == "__main__":
    main(sys.argv[1:])
