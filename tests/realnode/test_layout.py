"""Names and addresses of a real node: the same for one sandbox, apart for two."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from dovetail_sandbox import realnode
from dovetail_sandbox.realnode import RealNodeError
from dovetail_sandbox.realnode.errors import CommandError
from dovetail_sandbox.realnode.layout import Layout
from dovetail_sandbox.realnode.network import CANDIDATES, choose, disconnect


def test_one_state_directory_always_gives_the_same_names(tmp_path: Path) -> None:
    assert Layout.for_state_dir(tmp_path / "a") == Layout.for_state_dir(tmp_path / "b" / ".." / "a")


def test_two_sandboxes_share_neither_cgroup_nor_interface(tmp_path: Path) -> None:
    one, other = Layout.for_state_dir(tmp_path / "a"), Layout.for_state_dir(tmp_path / "b")
    assert one.cgroup != other.cgroup
    assert one.host_interface != other.host_interface


def test_the_interface_name_is_one_that_the_kernel_takes(tmp_path: Path) -> None:
    assert len(Layout.for_state_dir(tmp_path).host_interface) <= 15


def test_pods_have_addresses_of_their_own_beside_the_link() -> None:
    network = choose(first=7, taken=[])
    link = IPv4Network(f"{network.host_address}/{network.link_prefix}", strict=False)
    assert network.node_address in link
    assert not network.pods.overlaps(link)


def test_a_network_that_the_host_routes_elsewhere_is_passed_over() -> None:
    first = choose(first=7, taken=[]).block
    wider = first.supernet(new_prefix=20)
    assert not choose(first=7, taken=[first]).block.overlaps(first)
    assert not choose(first=7, taken=[wider]).block.overlaps(wider)


def test_a_host_that_routes_every_candidate_elsewhere_is_told_so() -> None:
    with pytest.raises(RealNodeError, match=r"No free network for the real node.*10\.213\.0\.0/16"):
        choose(first=7, taken=[CANDIDATES])


def ip(tmp_path: Path, script: str, *, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `ip` that does as the script says, in place of the machine's."""
    program = tmp_path / "ip"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")


def test_a_link_that_goes_by_itself_just_then_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the kernel tidies the node's namespace up between a look and the deletion."""
    looked = tmp_path / "looked"
    ip(
        tmp_path,
        f'[ "$2" = show ] && [ ! -e {looked} ] && touch {looked} && [ ! -e {tmp_path}/deleted ] && exit 0\n'
        f'[ "$2" = delete ] && touch {tmp_path}/deleted && echo Cannot find device >&2\nexit 1',
        monkeypatch=monkeypatch,
    )
    disconnect(Layout.for_state_dir(tmp_path))
    assert (tmp_path / "deleted").exists()


def test_a_link_that_is_there_and_cannot_be_deleted_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ip(tmp_path, '[ "$2" = show ] || { echo not permitted >&2; exit 2; }', monkeypatch=monkeypatch)
    with pytest.raises(CommandError, match="not permitted"):
        disconnect(Layout.for_state_dir(tmp_path))


def test_without_a_node_nothing_is_removed_and_no_program_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "state.json").touch()
    realnode.stop(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
