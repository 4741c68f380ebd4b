"""The program of the local node: its options become what its parts share, and what it leaves when it ends."""

import argparse
import stat
from pathlib import Path
from typing import Any, cast

import pytest

from dovetail.kube.client import Client
from dovetail_local_node import main
from dovetail_local_node.limits import choice
from dovetail_local_node.limits.groups import Groups, Hierarchy, version_2
from dovetail_local_node.limits.scope import Systemd


def options(folder: Path, *more: str, **changes: str) -> argparse.Namespace:
    (folder / "state").mkdir(exist_ok=True)
    known = {
        "node": "local", "user": "alice", "state": str(folder / "state"), "data": str(folder / "data"),
        "certificate": "tls.crt", "key": "tls.key", "client-ca": "ca.crt", "port": "10250", "metrics-port": "1",
    } | changes  # fmt: skip
    return main.parser().parse_args([*(f"--{name}={value}" for name, value in known.items()), *more])


def enforced(folder: Path) -> Groups:
    return Groups(hierarchies=(Hierarchy(parent=folder / "jobs", settings=version_2),), sentence="They are enforced.")


def test_the_options_are_what_jobs_run_by(tmp_path: Path) -> None:
    args = options(tmp_path, "--account=a:b", "--account=c", "--umask=027", "--mark=SANDBOX=/s=1")
    args.groups = enforced(tmp_path)
    node = main._node(args, client=cast("Client", None), boot_id="this")
    place = node.place
    assert (place.user, place.accounts, place.node, place.address) == ("alice", ("a:b", "c"), "local", "127.0.0.1")
    assert (place.logs, place.home) == (tmp_path / "data" / "logs", Path.home())
    assert (node.runs.folder, node.environments.folder) == (tmp_path / "state/runs", tmp_path / "data/environments")
    assert (node.umask, node.extra, node.boot_id, node.groups) == (0o027, {"SANDBOX": "/s=1"}, "this", args.groups)


def test_without_a_mark_jobs_get_no_variable(tmp_path: Path) -> None:
    args = options(tmp_path)
    args.groups = enforced(tmp_path)
    node = main._node(args, client=cast("Client", None), boot_id="this")
    assert (node.extra, node.umask, node.place.accounts) == ({}, 0o022, ())


def test_the_users_folders_are_closed_to_others_whoever_made_them(tmp_path: Path) -> None:
    (tmp_path / "data" / "logs").mkdir(parents=True, mode=0o755)
    args = options(tmp_path)
    args.groups = enforced(tmp_path)
    main._node(args, client=cast("Client", None), boot_id="this")
    folders = (tmp_path / "data", tmp_path / "data" / "logs")
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700, 0o700]


@pytest.mark.parametrize(
    ("entered", "said"),
    [("", "Limits of CPU and memory are not enforced: no cgroups."), ("no bus", "not enforced: no bus.")],
)
def test_what_is_enforced_is_said_in_a_file_for_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entered: str, said: str
) -> None:
    monkeypatch.setattr(choice, "choose", lambda _name, **_: choice.none("no cgroups"))
    monkeypatch.setattr(Systemd, "enter", lambda _systemd: entered)
    args = options(tmp_path)
    assert main._groups(args).sentence.endswith(said)
    assert choice.sentence_file(args.state).read_text().endswith(said)


def test_each_sandbox_has_a_parent_of_its_own_for_its_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two local nodes of one machine must not remove each other's."""
    names = list[str]()

    def choose(name: str, **_: Any) -> Groups:
        names.append(name)
        return enforced(tmp_path)

    monkeypatch.setattr(choice, "choose", choose)
    for folder in (tmp_path / "a", tmp_path / "b", tmp_path / "a"):
        folder.mkdir(exist_ok=True)
        main._groups(options(folder))
    first, second, again = names
    assert first == again != second
    assert all(name.startswith("dovetail-") and "/" not in name for name in names)


@pytest.mark.parametrize("code", [0, 1])
def test_the_parent_of_the_cgroups_goes_with_the_node_unless_jobs_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    left = list[Groups]()

    def leave(groups: Groups) -> None:
        left.append(groups)

    monkeypatch.setattr(choice, "choose", lambda _name, **_: enforced(tmp_path))
    monkeypatch.setattr(main.serving, "run", lambda _program, **_: code)
    monkeypatch.setattr(Groups, "leave", leave)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in vars(options(tmp_path)).items() if value]
    with pytest.raises(SystemExit) as ended:
        main.main([word for word in words if not word.startswith("--umask")])
    assert (ended.value.code, left) == (code, [enforced(tmp_path)])
