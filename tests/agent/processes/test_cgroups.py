import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_agent.processes.cgroups import Owner, owner_in

POD = "0f2a9c1e-7d3b-4c55-9e10-6b1f2d3c4a5b"
SLICE_POD = POD.replace("-", "_")
BOX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_POD}.slice"
CGROUPFS = f"/kubepods/burstable/pod{POD}"
SHAPES = {
    "v1, cgroupfs, containerd": f"11:memory:{CGROUPFS}/{BOX}\n1:name=systemd:{CGROUPFS}/{BOX}\n",
    "v1, cgroupfs, guaranteed": f"4:cpu,cpuacct:/kubepods/pod{POD}/{BOX}\n",
    "v1, the device hierarchy alone": f"5:devices:{CGROUPFS}/{BOX}\n3:freezer:/\n0::/\n",
    "v1, systemd, docker": f"9:pids:{SYSTEMD}/docker-{BOX}.scope\n",
    "v1, cgroupfs, CRI-O": f"7:cpuset:{CGROUPFS}/crio-{BOX}\n",
    "v2, systemd, containerd": f"0::{SYSTEMD}/cri-containerd-{BOX}.scope\n",
    "v2, systemd, CRI-O": f"0::/kubepods.slice/kubepods-pod{SLICE_POD}.slice/crio-{BOX}.scope\n",
    "v2, systemd, CRI-O with crun's own level": f"0::{SYSTEMD}/crio-{BOX}.scope/container\n",
    "containerd with the other cgroup driver": f"0::/system.slice/kubepods-pod{SLICE_POD}.slice:cri-containerd:{BOX}\n",
    "a kubelet with a cgroup root of its own": f"0::/kubelet.slice/kubelet-pod{SLICE_POD}.slice/docker-{BOX}.scope\n",
    "seen from another cgroup namespace": f"0::/../../kubepods-pod{SLICE_POD}.slice/cri-containerd-{BOX}.scope\n",
    "a pod within a pod": f"0::/kubepods/pod{POD}/{BOX}/kubepods/pod{uuid.UUID(int=7)}/{'e' * 64}\n",
}
STRANGERS = {
    "a login": "0::/user.slice/user-1000.slice/session-3.scope\n",
    "a service": "0::/system.slice/slurmd.service\n",
    "a container that no kubelet runs": f"0::/system.slice/docker-{BOX}.scope\n",
    "a folder of the kubelet's without a pod": "0::/kubepods.slice/kubepods-burstable.slice\n",
    "a name that only begins so": "0::/kubepods/podman-build\n",
    "one digit too many": f"0::/kubepods/pod{POD}a/{BOX}\n",
    "a word that ends so": f"0::/tripod{POD}\n",
    "an ended process": "",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES.keys())
def test_pod_and_container_are_found_however_they_are_written(text: str) -> None:
    assert owner_in(text) == Owner(pod_uid=POD, container_id=BOX)


@pytest.mark.parametrize("text", STRANGERS.values(), ids=STRANGERS.keys())
def test_what_is_in_no_pod_is_a_stranger(text: str) -> None:
    assert owner_in(text) is None


def test_a_static_pod_is_known_by_the_hash_of_its_manifest() -> None:
    assert owner_in(f"0::/kubepods/burstable/pod{'a1' * 16}/{BOX}\n") == Owner(pod_uid="a1" * 16, container_id=BOX)


def test_a_pod_s_own_process_beside_its_containers_has_no_container() -> None:
    assert owner_in(f"0::/kubepods/burstable/pod{POD}\n") == Owner(pod_uid=POD)


@given(
    pod=st.uuids(),
    container=st.text("0123456789abcdef", min_size=64, max_size=64),
    quality=st.sampled_from(["", "burstable", "besteffort"]),
    prefix=st.sampled_from(["", "cri-containerd-", "crio-", "docker-", "libpod-"]),
    root=st.lists(st.from_regex(r"[a-z][a-z.]{0,12}", fullmatch=True), max_size=3),
    hierarchies=st.integers(1, 13),
)
def test_any_pod_is_found_below_any_root_in_both_drivers_shapes(
    pod: uuid.UUID, container: str, quality: str, prefix: str, root: list[str], hierarchies: int
) -> None:
    within = "-".join(["kubepods", *filter(None, [quality])])
    systemd = "/".join(["", *root, f"{within}-pod{str(pod).replace('-', '_')}.slice", f"{prefix}{container}.scope"])
    cgroupfs = "/".join(["", *root, "kubepods", *filter(None, [quality]), f"pod{pod}", f"{prefix}{container}"])
    for path in (systemd, cgroupfs):
        text = "".join(f"{number}:c{number}:{path}\n" for number in range(hierarchies))
        assert owner_in(text) == Owner(pod_uid=str(pod), container_id=container)


@given(st.text(max_size=300))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    found = owner_in(text)
    assert found is None or len(found.pod_uid) in {32, 36}
