"""What the doctor says of a machine, from its files below a folder."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_cli.doctor.findings import CheckResult
from dovetail_cli.doctor.host import judge

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 06:23:12 UTC 2026\n"
CONTAINERD = """
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = '{default}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = 'io.containerd.runc.v2'
"""
TOOLKIT = (
    'accept-nvidia-visible-devices-envvar-when-unprivileged = {heard}\n[nvidia-container-runtime]\nmode = "{mode}"\n'
)


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine in order."""
    write(tmp_path, "proc/driver/nvidia/version", DRIVER)
    write(tmp_path, "dev/nvidia0")
    write(tmp_path, "etc/containerd/config.toml", CONTAINERD.format(default="runc"))
    write(tmp_path, "etc/nvidia-container-runtime/config.toml", TOOLKIT.format(heard="true", mode="auto"))
    write(tmp_path, "run/dovetail/mps/pipe/control")
    write(tmp_path, "var/lib/kubelet/plugins_registry/mps.dovetail.dev.sock")
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers")
    folder = tmp_path / "var/lib/kubelet/pod-resources"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)  # a socket's whole path may be too long for one
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("kubelet.sock")
        yield tmp_path


def found(machine: Path, check: str) -> CheckResult:
    (finding,) = [finding for finding in judge(machine) if finding.check == check]
    return finding


def test_a_machine_in_order_has_nothing_but_good_findings(machine: Path) -> None:
    told = list(judge(machine))
    assert {finding.level for finding in told} == {"ok"}
    assert found(machine, "driver").message == "NVIDIA 570.86.15, nvidia0"


def test_a_driver_that_is_not_loaded(machine: Path) -> None:
    (machine / "proc/driver/nvidia/version").unlink()
    assert (found(machine, "driver").level, found(machine, "driver").message) == (
        "error", "NVIDIA's driver is not loaded",
    )  # fmt: skip


@pytest.mark.parametrize("device", ["dev/kfd", "dev/davinci_manager"])
def test_on_a_machine_with_anothers_cards_nothing_of_nvidias_is_missed(machine: Path, device: str) -> None:
    (machine / "proc/driver/nvidia/version").unlink()
    (machine / "etc/nvidia-container-runtime/config.toml").unlink()
    write(machine, device)
    told = list(judge(machine))
    assert {finding.level for finding in told} == {"ok"}
    assert [finding.check for finding in told] == ["driver", "pod-resources", "cgroups"]


def test_a_driver_without_cards(machine: Path) -> None:
    (machine / "dev/nvidia0").unlink()
    assert found(machine, "driver").level == "error"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("etc/containerd/config.toml", CONTAINERD.format(default="nvidia")),
        ("etc/containerd/conf.d/99-nvidia.toml", CONTAINERD.format(default="nvidia")),
        ("etc/crio/crio.conf.d/99-nvidia.conf", '[crio.runtime]\ndefault_runtime = "nvidia"\n'),
        ("etc/docker/daemon.json", '{"default-runtime": "nvidia", "runtimes": {"nvidia": {}}}'),
    ],
)
def test_nvidias_runtime_as_the_default_is_found_wherever_it_is_said(machine: Path, path: str, text: str) -> None:
    write(machine, path, text)
    finding = found(machine, "container-runtime")
    assert finding.level == "error"
    assert f"/{path}: nvidia" in finding.message


def test_a_runtime_without_nvidias_handler(machine: Path) -> None:
    write(machine, "etc/containerd/config.toml", "version = 3\n")
    assert "no runtime named nvidia" in found(machine, "container-runtime").message


def test_a_machine_without_any_runtime_known_to_us_is_not_judged(machine: Path) -> None:
    (machine / "etc/containerd/config.toml").unlink()
    assert found(machine, "container-runtime").level == "unknown"


def test_a_configuration_that_is_no_toml_is_a_warning_and_hides_nothing_else(machine: Path) -> None:
    write(machine, "etc/containerd/config.toml", "version = = 3\n")
    assert found(machine, "container-runtime").level == "warning"
    assert found(machine, "cgroups").level == "ok"


@pytest.mark.parametrize(
    ("heard", "mode", "level"),
    [("true", "auto", "ok"), ("false", "auto", "error"), ("true", "cdi", "error"), ("false", "cdi", "error")],
)
def test_whether_the_toolkit_hears_the_variable(machine: Path, heard: str, mode: str, level: str) -> None:
    write(machine, "etc/nvidia-container-runtime/config.toml", TOOLKIT.format(heard=heard, mode=mode))
    assert found(machine, "toolkit").level == level


@pytest.mark.parametrize(
    ("line", "level", "says"),
    [
        ("accept-nvidia-visible-devices-as-volume-mounts = true", "warning", "by mounts too"),
        ('swarm-resource = "DOCKER_RESOURCE_GPU"', "error", "by the variable DOCKER_RESOURCE_GPU too"),
        ("accept-nvidia-visible-devices-as-volume-mounts = false", "ok", "is heard"),
    ],
)
def test_other_ways_by_which_the_toolkit_gives_devices(machine: Path, line: str, level: str, says: str) -> None:
    text = TOOLKIT.format(heard="true", mode="auto")
    write(machine, "etc/nvidia-container-runtime/config.toml", f"{line}\n{text}")
    first = next(finding for finding in judge(machine) if finding.check == "toolkit")
    assert (first.level, says in first.message) == (level, True)


def test_a_machine_without_the_toolkit(machine: Path) -> None:
    (machine / "etc/nvidia-container-runtime/config.toml").unlink()
    assert found(machine, "toolkit").level == "warning"


def test_in_mode_cdi_the_variable_is_heard_where_a_specification_names_the_devices(machine: Path) -> None:
    write(machine, "etc/nvidia-container-runtime/config.toml", TOOLKIT.format(heard="true", mode="cdi"))
    assert "there is none of NVIDIA's" in found(machine, "toolkit").message
    write(machine, "var/run/cdi/nvidia.yaml")
    assert found(machine, "toolkit").message == "mode cdi, and NVIDIA_VISIBLE_DEVICES is heard"


def test_specifications_of_cdi_are_a_warning(machine: Path) -> None:
    write(machine, "etc/cdi/nvidia.yaml")
    assert (found(machine, "cdi").level, found(machine, "cdi").message[:11]) == ("warning", "nvidia.yaml")


def test_a_kubelet_without_its_socket(machine: Path) -> None:
    (machine / "var/lib/kubelet/pod-resources/kubelet.sock").unlink()
    assert found(machine, "pod-resources").level == "warning"


def test_a_machine_without_mps(machine: Path) -> None:
    (machine / "run/dovetail/mps/pipe/control").unlink()
    assert found(machine, "mps").level == "warning"


def test_a_machine_with_mps_whose_volume_driver_is_away(machine: Path) -> None:
    (machine / "var/lib/kubelet/plugins_registry/mps.dovetail.dev.sock").unlink()
    assert found(machine, "mps").level == "error"
    assert "dovetail-mps-csi" in found(machine, "mps").fix


@pytest.mark.parametrize(("folder", "level"), [("freezer", "ok"), ("memory", "warning")])
def test_cgroups_of_the_first_version(machine: Path, folder: str, level: str) -> None:
    (machine / "sys/fs/cgroup/cgroup.controllers").unlink()
    (machine / "sys/fs/cgroup" / folder).mkdir()
    assert found(machine, "cgroups").level == level


def test_what_may_not_be_read_is_said(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert found(machine, "toolkit").level == "unknown"


def test_the_frameworks_of_the_machine_are_judged_by_its_driver(machine: Path) -> None:
    write(machine, "usr/lib/python3/dist-packages/torch/version.py", "cuda: Optional[str] = '13.0'\n")
    finding = found(machine, "framework")
    assert (finding.level, finding.fix) == (
        "error", "install a driver of branch 580 or newer, or use a build for CUDA 12.8",
    )  # fmt: skip
