"""An image's archive: layers in order under their digests, and the configuration that a runtime reads."""

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "images" / "assemble.py"


def assemble(name: str, *, folder: Path, layers: int = 2) -> tuple[Path, str]:
    """The archive, and what the script printed."""
    paths = [folder / f"layer-{number}.tar" for number in range(layers)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 3_000_000)
    archive = folder / "archive.tar"
    done = subprocess.run([sys.executable, SCRIPT, name, archive, *paths], capture_output=True, text=True, check=True)
    return archive, done.stdout


def read(archive: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, bytes]]:
    """Manifest, configuration, and every file of the archive."""
    with tarfile.open(archive) as whole:
        files = {each.name: stream.read() for each in whole if (stream := whole.extractfile(each))}
    (manifest,) = json.loads(files["manifest.json"])
    return manifest, json.loads(files[manifest["Config"]]), files


def test_each_layer_is_under_its_digest_and_in_its_order(tmp_path: Path) -> None:
    manifest, config, files = read(assemble("agent", folder=tmp_path)[0])
    digests = [hashlib.sha256(files[name]).hexdigest() for name in manifest["Layers"]]
    assert manifest["Layers"] == [f"{digest}.tar" for digest in digests]
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    assert manifest["RepoTags"] == ["dovetail.local/agent:dev"]
    assert manifest["Config"] == hashlib.sha256(files[manifest["Config"]]).hexdigest() + ".json"


def test_an_image_starts_its_program_as_a_user_without_rights(tmp_path: Path) -> None:
    programs = {}
    for name in ("agent", "cli"):
        config = read(assemble(name, folder=tmp_path)[0])[1]["config"]
        assert config["User"] == "65532:65532"
        programs[name] = config["Entrypoint"]
    assert programs == {"agent": ["/opt/dovetail/bin/dovetail-agent"], "cli": ["/opt/dovetail/bin/dovetail"]}


def test_the_same_layers_make_the_same_archive_and_the_size_is_without_the_base(tmp_path: Path) -> None:
    archive, printed = assemble("agent", folder=tmp_path)
    first = archive.read_bytes()
    assert assemble("agent", folder=tmp_path)[0].read_bytes() == first
    assert printed == "images: dovetail.local/agent:dev, 3 MB beyond the base\n"


def test_an_archive_does_not_depend_on_the_modes_of_the_cache(tmp_path: Path) -> None:
    archive, _ = assemble("agent", folder=tmp_path)
    first = archive.read_bytes()
    for number in range(2):
        (tmp_path / f"layer-{number}.tar").chmod(0o600 if number else 0o664)
    assert assemble("agent", folder=tmp_path)[0].read_bytes() == first


def test_an_image_of_more_than_150_mb_beyond_its_base_is_refused(tmp_path: Path) -> None:
    base, packages = tmp_path / "base.tar", tmp_path / "packages.tar"
    for path, size in ((base, 200_000_000), (packages, 150_600_000)):
        with path.open("wb") as stream:
            stream.truncate(size)
    command = [sys.executable, SCRIPT, "operator", tmp_path / "archive.tar", base, packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "images: operator would have 151 MB beyond the base, and at most 150 are allowed\n"
    assert not (tmp_path / "archive.tar").exists()
