"""The script that starts kube-controller-manager, run with programs of this test."""

import subprocess
from pathlib import Path

import pytest

from dovetail_sandbox.nodes import kwok


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Its kubectl fails twice; its program prints its arguments."""
    kubectl, program, path = (tmp_path / name for name in ("kubectl", "program", "script"))
    kubectl.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n[ "$(wc -l <{tmp_path}/asked)" -gt 2 ]\n', encoding="utf-8"
    )
    program.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    path.write_text(kwok.starter(program, kubectl=kubectl, port=4321, pki=tmp_path / "a pki"), encoding="utf-8")
    for each in (kubectl, program, path):
        each.chmod(0o700)
    return path


def run(script: Path, *arguments: str) -> str:
    return subprocess.run([script, *arguments], capture_output=True, text=True, timeout=60, check=True).stdout


def test_it_asks_until_the_api_server_is_ready_and_passes_its_arguments(script: Path) -> None:
    assert run(script, "--one=1", "--two=a b") == "--one=1 --two=a b\n"
    asked = script.with_name("asked").read_text(encoding="utf-8").splitlines()
    assert len(asked) == 3
    assert "--server=https://127.0.0.1:4321" in asked[0]
    assert asked[0].endswith("get --raw=/readyz")


def test_a_question_for_the_version_is_answered_at_once(script: Path) -> None:
    assert run(script, "version") == "version\n"
    assert not script.with_name("asked").exists()
