"""`dovetail-mps` around its supervisor: folders, the state that it takes over, whom it tells, and what it counts."""

import asyncio
from argparse import Namespace
from pathlib import Path

import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpunodetenants import GPUNodeTenants, GPUNodeTenantsSpec
from dovetail.api.meta import ObjectMeta
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_agent.mps import pod_modes, state_file
from dovetail_agent.mps.main import MpsCollector, Work, health, parser
from dovetail_agent.mps.pod_modes import KnownPod
from dovetail_agent.mps.state_file import State
from tests.agent.builders import allocated, make_pod
from tests.agent.recorded import Recorded

KEPT = State(at=1.0, live=True, reason="Probed", message="m", exclusive=["GPU-a"])


def told_of(*pods: Pod) -> GPUNodeTenants:
    """What the operator writes of the node `a` with these pods."""
    tenants = [tenant for pod in pods if (tenant := tenant_of_pod(pod))]
    return GPUNodeTenants(metadata=ObjectMeta(name="a"), spec=GPUNodeTenantsSpec(tenants=tenants))


def arguments(folder: Path) -> Namespace:
    return parser().parse_args([f"--directory={folder}", "--node=a", "--metrics-port=0"])


@pytest.fixture
def work(tmp_path: Path) -> Work:
    (tmp_path / "state").mkdir()
    state_file.write(tmp_path / "state" / "mps.json", state=KEPT)
    return Work(Client(Connection(server="http://127.0.0.1:1")), args=arguments(tmp_path), settings=Settings())


def test_a_node_and_a_folder_must_be_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--metrics-port=0"])
    assert "--node, --directory" in capsys.readouterr().err


def test_the_folders_are_made_and_every_user_may_write_shared_memory(work: Work, tmp_path: Path) -> None:
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "log", "clients", "shm", "state"}
    assert (tmp_path / "shm").stat().st_mode & 0o7777 == 0o1777


def test_the_cards_that_the_last_one_closed_are_taken_over(work: Work) -> None:
    assert work.supervisor._kept == {"GPU-a"}


def test_what_the_last_one_proved_is_not_claimed_of_a_daemon_that_is_yet_to_begin(work: Work, tmp_path: Path) -> None:
    left = state_file.read(tmp_path / "state" / "mps.json")
    assert left is not None
    assert (left.live, left.reason, left.exclusive) == (False, "Starting", ["GPU-a"])


def test_pods_whose_clients_were_lost_are_told_how(work: Work) -> None:
    work.tenants._on_object("ADDED", told_of(make_pod()))
    work.events = recorded = Recorded()
    work._report_lost({"pod-uid": "its MPS server has ended", "gone": "too"})
    (event,) = recorded.events
    assert (event.kind, event.name, event.reason) == ("Pod", "train-0", "MPSClientLost")
    assert event.message.endswith("is lost: its MPS server has ended")


def test_tenants_come_and_go_as_the_operator_says(work: Work) -> None:
    work.tenants._on_object("ADDED", told_of(make_pod()))
    assert work._changed.is_set()
    assert [tenant.name for tenant in work.tenants.tenants("a")] == ["train-0"]
    work.tenants._on_object("MODIFIED", told_of())
    assert work.tenants.tenants("a") == ()


async def test_no_card_is_opened_before_anybody_said_who_is_there(work: Work) -> None:
    steps: list[object] = []
    work.supervisor.step = steps.append  # type: ignore[method-assign,assignment]
    work.tenants.reflector.synced.set()
    task = asyncio.create_task(work.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert steps == []
    work.tenants._on_object("ADDED", told_of())
    async with asyncio.timeout(60):
        while not steps:  # noqa: ASYNC110 - another thread steps
            await asyncio.sleep(0.01)
    task.cancel()


async def test_the_volume_driver_finds_who_shares_devices_once_the_pods_are_known(work: Work, tmp_path: Path) -> None:
    listed = pod_modes.path_in(tmp_path)
    task = asyncio.create_task(work.list_tenants())
    try:
        work.tenants.reflector.synced.set()
        await asyncio.sleep(0.01)
        assert not listed.exists()
        work.tenants._on_object("ADDED", told_of(make_pod()))
        assert await known(listed, "pod-uid") == KnownPod(namespace="ml", name="train-0")
        assert listed.stat().st_mode & 0o777 == 0o600
        share = make_pod(allocated(0, share_milli=500), mode="Fractional")
        work.tenants._on_object("MODIFIED", told_of(share))
        assert await known(listed, "pod-uid") == KnownPod(namespace="ml", name="train-0", mode="Fractional")
        work.tenants._on_object("MODIFIED", told_of())
        assert await known(listed, "pod-uid") is None
    finally:
        task.cancel()


async def known(listed: Path, uid: str) -> KnownPod | None:
    """After the writer had its turn."""
    await asyncio.sleep(0.01)
    return (pod_modes.read(listed) or {}).get(uid)


def test_it_counts_clients_crashes_and_closed_cards(work: Work) -> None:
    work.state = State(at=1.0, live=True, clients={"a": 2, "": 1}, exclusive=["GPU-a"], crashes_total=3)
    found = {sample.name: sample.value for family in MpsCollector(work).collect() for sample in family.samples}
    assert (found["dovetail_mps_live"], found["dovetail_mps_clients"]) == (1, 3)
    assert (found["dovetail_mps_exclusive_devices"], found["dovetail_mps_crashes_total"]) == (1, 3)


def test_it_has_health_and_metrics(work: Work) -> None:
    paths = {route.resource.canonical for route in health(work).router.routes() if route.resource}
    assert paths == {"/livez", "/readyz", "/metrics"}
