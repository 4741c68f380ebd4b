"""The shared memory of a node's clients: bounded, everybody's, and kept when it is there already."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.mps_csi import HOLD, incapable

MOUNT = (sys.executable, "-m", "dovetail_agent.mps.volume_driver.shared_memory_main")


def mounted(folder: Path, *sizes: str) -> str:
    """What `stat` and the mount table say of it, after it was mounted with each of these sizes in one node."""
    steps = [f"{' '.join(MOUNT)} --directory={folder} --size={size} && touch {folder}/shm/kept" for size in sizes]
    said = f"stat -c %a {folder}/shm; ls {folder}/shm; grep {folder}/shm /proc/self/mounts"
    done = subprocess.run(
        [*HOLD, "sh", "-c", f"{' && '.join(steps)}; {said}"], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if reason := incapable():
        pytest.skip(f"no mount namespace here: {reason}")
    return tmp_path


def test_it_is_mounted_once_with_its_size_for_every_user(folder: Path) -> None:
    mode, kept, mount = mounted(folder, "1m").splitlines()
    assert (mode, kept) == ("1777", "kept")
    assert {"rw", "nosuid", "nodev", "noexec", "size=1024k"} <= set(mount.split()[3].split(","))


def test_a_second_time_its_files_stay_and_the_size_is_the_new_one(folder: Path) -> None:
    _, kept, mount = mounted(folder, "1m", "2m").splitlines()
    assert kept == "kept"
    assert "size=2048k" in mount


def test_a_folder_that_cannot_be_a_mount_is_named(folder: Path) -> None:
    (folder / "shm").symlink_to("/etc")
    words = [*HOLD, *MOUNT, f"--directory={folder}", "--size=1m"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == f"{folder}/shm: Not a directory"
