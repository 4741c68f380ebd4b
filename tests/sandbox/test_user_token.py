"""The token by which console, Python programs and scripts act as the user of a sandbox's kubeconfig."""

import csv
import stat
from pathlib import Path

import pytest

from dovetail_sandbox import user_token
from dovetail_sandbox.errors import SandboxError
from tests.sandbox.nodes.kwok_documents import configured


def test_the_file_is_what_the_api_server_reads_and_only_its_user_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "user-token.csv"
    user_token.write(path, user='an, "odd" name')
    (row,) = csv.reader(path.read_text(encoding="utf-8").splitlines())
    assert row[1:] == ['an, "odd" name', 'an, "odd" name', "system:masters"]
    assert (user_token.read(path), len(row[0]) >= 43) == (row[0], True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_kept_queue_keeps_the_token_of_its_user_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "user-token.csv", tmp_path / "other.csv"
    user_token.write(path, user="rita")
    first = user_token.read(path)
    user_token.write(path, user="rita")
    assert user_token.read(path) == first
    for each in (path, other):
        user_token.write(each, user="mona")
    assert len({first, user_token.read(path), user_token.read(other)}) == 3


def test_the_api_server_gets_the_file() -> None:
    patches = {each["name"]: each for each in configured()["componentsPatches"]}
    arguments = {each["key"]: each["value"] for each in patches["kube-apiserver"]["extraArgs"]}
    assert arguments["token-auth-file"] == "user-token.csv"


def test_a_sandbox_of_an_earlier_version_has_none_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="an earlier version started this sandbox"):
        user_token.read(tmp_path / "user-token.csv")
