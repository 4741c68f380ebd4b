"""MPS's volume driver over its socket, with real mounts: who gets which folder, and who gets nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from dovetail_agent.kubelet.v1 import csi_pb2 as csi
from tests.agent.mps_csi import Driver, incapable, node


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    if reason := incapable():
        pytest.skip(f"no mount namespace here: {reason}")
    with node("--wait=0.2") as driver:
        yield driver


@pytest.fixture
def uid(request: pytest.FixtureRequest) -> str:
    """A pod of this test's alone."""
    return f"{abs(hash(request.node.nodeid)):032x}"


async def refused(driver: Driver, target: Path, *, uid: str, folder: str = "pipe", **context: str) -> GRPCError:
    with pytest.raises(GRPCError) as caught:
        await driver.publish(target, uid=uid, folder=folder, **context)
    assert driver.flags(target) == set()
    return caught.value


async def test_kubelet_learns_the_drivers_name_socket_and_node(driver: Driver) -> None:
    info = await driver.register(taken=True)
    assert (info.type, info.name, info.endpoint) == ("CSIPlugin", "mps.dovetail.dev", str(driver.socket))
    assert list(info.supported_versions) == ["1.0.0"]
    here = await driver.call("/csi.v1.Node/NodeGetInfo", csi.NodeGetInfoRequest(), csi.NodeGetInfoResponse)
    assert here.node_id == "here"
    who = await driver.call("/csi.v1.Identity/GetPluginInfo", csi.GetPluginInfoRequest(), csi.GetPluginInfoResponse)
    assert (who.name, bool(who.vendor_version)) == ("mps.dovetail.dev", True)


def test_only_root_may_connect(driver: Driver) -> None:
    assert driver.socket.stat().st_mode & 0o777 == 0o600


async def test_a_share_gets_the_pipes_to_read_and_shared_memory_to_write(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    pipe, shm = driver.target(uid), driver.target(uid, folder="shm")
    await driver.publish(pipe, uid=uid, folder="pipe")
    await driver.publish(shm, uid=uid, folder="shm")
    assert driver.flags(pipe) >= {"ro", "nosuid", "nodev", "noexec"}
    assert driver.flags(shm) >= {"rw", "nosuid", "nodev", "noexec"}
    (driver.folder / "mps" / "clients" / "control").touch()
    assert driver.inside(pipe / "control").exists()
    with pytest.raises(OSError, match="Read-only"):
        driver.inside(pipe / "control").unlink()
    driver.inside(shm / "cuda.shm.0").touch()
    assert (driver.folder / "mps" / "shm" / "cuda.shm.0").exists()


async def test_kubelet_may_ask_twice_for_both(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    target = driver.target(uid)
    await driver.publish(target, uid=uid)
    await driver.publish(target, uid=uid)
    assert "ro" in driver.flags(target)
    await driver.unpublish(target)
    await driver.unpublish(target)
    assert driver.flags(target) == set()
    assert not target.exists()


async def test_a_pod_that_ended_is_unmounted_though_nobody_lists_it(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    target = driver.target(uid)
    await driver.publish(target, uid=uid)
    driver.tell()
    await driver.unpublish(target)
    assert driver.flags(target) == set()


@pytest.mark.parametrize(
    ("mode", "said"),
    [("Exclusive", "its devices are Exclusive"), ("TimeShared", "its devices are TimeShared"), ("", "given no device")],
)
async def test_a_pod_of_another_mode_gets_nothing(driver: Driver, uid: str, mode: str, said: str) -> None:
    driver.tell(uid, mode=mode)
    error = await refused(driver, driver.target(uid), uid=uid)
    assert error.status is Status.PERMISSION_DENIED
    assert f"pod default/pod-{uid} has no share of a device on this node: " in str(error.message)
    assert said in str(error.message)


async def test_a_pod_that_the_supervisor_does_not_know_gets_nothing(driver: Driver, uid: str) -> None:
    driver.tell("another")
    error = await refused(driver, driver.target(uid), uid=uid)
    assert error.status is Status.PERMISSION_DENIED


async def test_a_pod_that_is_listed_a_moment_later_is_waited_for(driver: Driver, uid: str) -> None:
    driver.tell("another")
    target = driver.target(uid)
    asked = asyncio.create_task(driver.publish(target, uid=uid))
    await asyncio.sleep(0.05)
    driver.tell("another", uid)
    await asked
    assert "ro" in driver.flags(target)


async def test_before_there_is_a_list_kubelet_is_asked_to_come_again(driver: Driver, uid: str) -> None:
    listed = driver.folder / "mps" / "state" / "tenants.json"
    for text in (None, b"", b"[" * 5000, b'{"a": 1}'):
        listed.unlink(missing_ok=True) if text is None else listed.write_bytes(text)
        error = await refused(driver, driver.target(uid), uid=uid)
        assert error.status is Status.UNAVAILABLE


async def test_one_pod_cannot_have_a_volume_for_another(driver: Driver, uid: str) -> None:
    driver.tell(uid, "f" * 32)
    error = await refused(driver, driver.target("f" * 32), uid=uid)
    assert error.status is Status.PERMISSION_DENIED


@pytest.mark.parametrize("folder", ["", "state", "../state", "/etc", "pipe/", "PIPE", "x" * 100_000])
async def test_only_the_two_folders_can_be_asked_for(driver: Driver, uid: str, folder: str) -> None:
    driver.tell(uid)
    error = await refused(driver, driver.target(uid), uid=uid, folder=folder)
    assert error.status is Status.INVALID_ARGUMENT
    assert "must be pipe or shm" in str(error.message)


async def test_a_pod_has_each_folder_once_whatever_it_calls_its_volumes(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    for volume in ("a", "dovetail-mps-shm", "dovetail-mps-pipe-2"):
        target = driver.target(uid).parents[1] / volume / "mount"
        target.parent.mkdir()
        error = await refused(driver, target, uid=uid, folder="pipe")
        assert error.status is Status.INVALID_ARGUMENT
        assert "its name must be dovetail-mps-pipe" in str(error.message)


async def test_a_persistent_volume_is_refused(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    error = await refused(driver, driver.target(uid), uid=uid, **{"csi.storage.k8s.io/ephemeral": "false"})
    assert error.status is Status.PERMISSION_DENIED


@pytest.mark.parametrize(
    "below",
    [
        "{uid}/volumes/kubernetes.io~csi/x/other",
        "{uid}/volumes/kubernetes.io~csi/../../../../mps/state/mount",
        "{uid}/volumes/kubernetes.io~csi//mount",
        "{uid}/volumes/kubernetes.io~csi/./mount",
        "{uid}/volumes/kubernetes.io~empty-dir/x/mount",
        "../{uid}/volumes/kubernetes.io~csi/x/mount",
        "{uid}/volumes/kubernetes.io~csi/x/mount\n",
        "",
    ],
)
async def test_a_path_that_is_not_a_pods_volume_is_refused(driver: Driver, uid: str, below: str) -> None:
    driver.tell(uid)
    path = f"{driver.folder}/kubelet/pods/{below.format(uid=uid)}"
    for call in (driver.publish(Path(path), uid=uid), driver.unpublish(Path(path))):
        with pytest.raises(GRPCError) as caught:
            await call
        assert caught.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize("depth", ["mount", "dovetail-mps-pipe", "kubernetes.io~csi"])
async def test_a_symbolic_link_on_the_way_is_not_followed(driver: Driver, uid: str, depth: str) -> None:
    driver.tell(uid)
    target = driver.target(uid)
    elsewhere = driver.folder / f"elsewhere-{uid}"
    (elsewhere / "dovetail-mps-pipe" / "mount").mkdir(parents=True)
    (elsewhere / "mount").mkdir()
    link = next(each for each in (target, *target.parents) if each.name == depth)
    if link != target:
        target.parent.rmdir()
        if link != target.parent:
            link.rmdir()
    link.symlink_to(elsewhere)
    for call in (driver.publish(target, uid=uid), driver.unpublish(target)):
        with pytest.raises(GRPCError) as caught:
            await call
        assert caught.value.status is Status.INTERNAL
    assert not [line for line in _mounts(driver) if str(elsewhere) in line]
    assert (elsewhere / "mount").is_dir()
    assert (elsewhere / "dovetail-mps-pipe" / "mount").is_dir()


async def test_files_at_a_target_are_never_removed(driver: Driver, uid: str) -> None:
    target = driver.target(uid)
    target.mkdir()
    (target / "precious").touch()
    with pytest.raises(GRPCError) as caught:
        await driver.unpublish(target)
    assert caught.value.status is Status.INTERNAL
    assert (target / "precious").exists()


async def test_a_mount_of_a_folder_that_is_no_more_is_replaced(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    pipe, target = driver.folder / "mps" / "clients", driver.target(uid)
    await driver.publish(target, uid=uid)
    pipe.rename(driver.folder / "mps" / f"old-{uid}")
    pipe.mkdir()
    (pipe / f"new-{uid}").touch()
    assert not driver.inside(target / f"new-{uid}").exists()
    await driver.publish(target, uid=uid)
    assert driver.inside(target / f"new-{uid}").exists()
    assert "ro" in driver.flags(target)


async def test_a_mount_of_the_same_folder_with_other_rights_is_replaced(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    target = driver.target(uid)
    target.mkdir()
    driver.mount(driver.folder / "mps" / "clients", at=target)
    assert "rw" in driver.flags(target)
    await driver.publish(target, uid=uid)
    assert "ro" in driver.flags(target)


async def test_whatever_is_mounted_at_a_target_goes_with_it(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    target = driver.target(uid)
    await driver.publish(target, uid=uid)
    driver.mount(driver.folder / "mps" / "shm", at=target)
    await driver.unpublish(target)
    assert driver.flags(target) == set()
    assert not target.exists()


async def test_mounts_outlive_the_driver_and_the_next_one_unmounts_them(driver: Driver, uid: str) -> None:
    driver.tell(uid)
    target = driver.target(uid)
    await driver.publish(target, uid=uid)
    driver.kill()
    assert "ro" in driver.flags(target)
    driver.start()
    await driver.publish(target, uid=uid)
    await driver.unpublish(target)
    assert driver.flags(target) == set()


async def test_nothing_but_its_own_mounts_is_left(driver: Driver, uid: str) -> None:
    assert not [line for line in _mounts(driver) if f"{driver.folder}/staging" in line]


async def test_clients_may_write_in_the_pipes_where_a_site_says_so(uid: str) -> None:
    if reason := incapable():
        pytest.skip(f"no mount namespace here: {reason}")
    with node("--pipe-writable") as driver:
        driver.tell(uid)
        await driver.publish(driver.target(uid), uid=uid)
        assert "rw" in driver.flags(driver.target(uid))
        assert driver.stop() == 0
        assert not driver.socket.exists()
        assert "rw" in driver.flags(driver.target(uid))


@pytest.mark.parametrize(
    ("error", "why"), [("driver name collision", "driver name collision"), ("", "it does not say")]
)
async def test_a_driver_that_kubelet_does_not_take_ends_and_says_why(error: str, why: str) -> None:
    if reason := incapable():
        pytest.skip(f"no mount namespace here: {reason}")
    with node() as driver:
        await driver.register(taken=True)
        with suppress(StreamTerminatedError):  # it may end before its answer is sent
            await driver.register(taken=False, error=error)
        _, said = driver.process.communicate(timeout=60)
        assert driver.process.returncode == 1
        assert f"kubelet does not take the driver mps.dovetail.dev: {error or 'it does not say why'}" in said


def _mounts(driver: Driver) -> list[str]:
    return Path(f"/proc/{driver.holder.pid}/mountinfo").read_text().splitlines()
