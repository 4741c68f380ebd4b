"""The cache of images: archives of several checkouts live in it together."""

import os
import subprocess
import time
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "images" / "lib.sh"
HOUR = 3600


def run(command: str, *, home: Path) -> int:
    """The exit status of a command of the library, with its cache under `home`."""
    script = f"set -euo pipefail; source {LIBRARY}; {command}"
    env = {**os.environ, "XDG_CACHE_HOME": str(home)}
    return subprocess.run(["bash", "-c", script], env=env, check=False, timeout=30).returncode


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "dovetail" / "images"
    folder.mkdir(parents=True)
    return folder


def archive(cache: Path, name: str, *, unused_s: float) -> Path:
    path = cache / name
    path.touch()
    then = time.time() - unused_s
    os.utime(path, (then, then))
    return path


def build(cache: Path, name: str) -> None:
    """Make an archive as the scripts do."""
    made = f'"$CACHE/{name}"'
    assert run(f'echo new >"$(partial {made})"; keep {made}', home=cache.parents[1]) == 0


def test_a_build_leaves_what_another_checkout_used_within_an_hour(cache: Path) -> None:
    used = archive(cache, "agent-1111.tar", unused_s=HOUR / 2)
    old = archive(cache, "agent-2222.tar", unused_s=2 * HOUR)
    build(cache, "agent-3333.tar")
    assert used.exists()
    assert not old.exists()
    assert (cache / "agent-3333.tar").read_text() == "new\n"


def test_a_build_leaves_other_images_of_any_age(cache: Path) -> None:
    other = archive(cache, "layer-packages-agent-1111.tar", unused_s=100 * HOUR)
    build(cache, "agent-3333.tar")
    assert other.exists()


def test_what_a_killed_build_has_left_goes_after_an_hour(cache: Path) -> None:
    killed = archive(cache, "agent-1111.tar.77.new", unused_s=2 * HOUR)
    running = archive(cache, "agent-1111.tar.78.new", unused_s=0)
    build(cache, "agent-3333.tar")
    assert not killed.exists()
    assert running.exists()


def test_a_build_that_finds_an_archive_uses_it(cache: Path) -> None:
    found = archive(cache, "agent-1111.tar", unused_s=2 * HOUR)
    assert run(f"cached {found}", home=cache.parents[1]) == 0
    build(cache, "agent-3333.tar")
    assert found.exists()


def test_an_archive_that_is_missing_is_not_created_by_asking_for_it(cache: Path) -> None:
    assert run(f"cached {cache}/agent-1111.tar", home=cache.parents[1]) == 1
    assert not list(cache.iterdir())
