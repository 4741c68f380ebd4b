"""A machine that cannot run a real node is told why, in one sentence with the fix."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from dovetail_sandbox.realnode import capability


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(capability, "_has_capability", lambda _: True)


def test_the_answer_is_none_or_one_line() -> None:
    reason = capability.capable()
    assert reason is None or (reason.startswith("A real node needs") and "\n" not in reason)


def test_another_system_than_linux_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert capability.capable() == "A real node needs Linux, and this is darwin."


def test_a_plain_user_is_told_that_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert str(capability.capable()).startswith("A real node needs root")


@pytest.mark.usefixtures("as_root")
def test_missing_programs_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in capability.PROGRAMS.keys() - {"runc", "nft"}:
        (tmp_path / program).symlink_to("/bin/true")
    static = tmp_path / "busybox"
    static.write_bytes(b"\x7fELF")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert capability.capable(busybox=static, plugin_folders=(tmp_path,)) == (
        "A real node needs runc, nft, the CNI plugins ptp, host-local, loopback: "
        "apt-get install --no-install-recommends containernetworking-plugins nftables runc"
    )


@pytest.mark.usefixtures("as_root")
def test_a_container_without_privileges_is_told_which_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability, "_has_capability", lambda _: False)
    assert "CAP_SYS_ADMIN" in str(capability.capable())


def test_a_program_that_needs_libraries_is_not_static(tmp_path: Path) -> None:
    static = tmp_path / "static"
    static.write_bytes(b"\x7fELF and nothing else")
    assert capability.is_static(static)
    assert not capability.is_static(Path(shutil.which("mount") or "/bin/mount"))
    assert not capability.is_static(tmp_path / "missing")
