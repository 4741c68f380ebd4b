"""Files that ended pods left in the clients' shared memory, on a real file system in memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.mps_csi import HOLD, incapable

# Left over before and after; then what is still there.
CLEAR = """
import sys
from pathlib import Path
from dovetail_agent.mps.leftovers import SharedMemory
memory = SharedMemory(Path(sys.argv[1]))
print(memory.left_over())
memory.clear()
print(memory.left_over())
print(sorted(each.name for each in Path(sys.argv[1]).iterdir()))
"""
MOUNT = 'mount -t tmpfs -o size=200m tmpfs "$0/shm"; cd "$0/shm"'


def cleared(folder: Path, *, left: str, mount: str = MOUNT) -> list[str]:
    if reason := incapable():
        pytest.skip(f"no mount namespace here: {reason}")
    (folder / "shm").mkdir()
    script = f'{mount}; {left}; exec "$1" -c "$2" "$0/shm"'
    words = [*HOLD, "sh", "-ec", script, str(folder), sys.executable, CLEAR]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "cleared" not in line]


def test_much_memory_is_left_over_and_freed(tmp_path: Path) -> None:
    before, after, names = cleared(tmp_path, left="head -c 100000000 /dev/zero > big; touch small")
    assert (before, after, names) == ("95 MiB in 3 files", "", "[]")


def test_many_files_are_left_over_too(tmp_path: Path) -> None:
    before, after, names = cleared(tmp_path, left="seq 1500 | xargs touch")
    assert (before, after, names) == ("0 MiB in 1501 files", "", "[]")


def test_folders_nested_deeper_than_python_recurses_are_removed(tmp_path: Path) -> None:
    deep = """"$1" -c 'import os\nfor _ in range(3000): os.mkdir("d"); os.chdir("d")'"""
    before, after, names = cleared(tmp_path, left=deep)
    assert (before.endswith("in 3001 files"), after, names) == (True, "", "[]")


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    _, _, names = cleared(tmp_path, left='ln -s "$0/elsewhere" link')
    assert names == "[]"
    assert (tmp_path / "elsewhere" / "precious").exists()


def test_what_mps_itself_has_is_borne(tmp_path: Path) -> None:
    before, *_ = cleared(tmp_path, left="head -c 1000000 /dev/zero > cuda.shm.0")
    assert before == ""


def test_a_folder_that_is_no_mount_of_its_own_is_left_alone(tmp_path: Path) -> None:
    before, *_ = cleared(tmp_path, left="seq 1500 | xargs touch", mount='cd "$0/shm"')
    assert before == ""
