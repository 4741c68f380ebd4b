"""The volumes of a pod: folders of this machine, where a process can have them, and refusals where it cannot."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail_local_node import admission, launch, volume_files, volumes
from dovetail_local_node.admission import Refusal
from dovetail_local_node.pod_object import LocalPod
from dovetail_local_node.volumes import Source
from tests.local_node import builders
from tests.local_node.builders import UID

TOKEN = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
CONFIG = {"name": "train-config", "configMap": {"name": "lr"}}
Objects = Mapping[str, Mapping[str, bytes]]


def pod(*mounted: tuple[dict[str, Any], dict[str, Any]], command: tuple[str, ...] = ("true",), **spec: Any) -> LocalPod:
    """A pod of one container; each volume with how it is mounted."""
    made = msgspec.to_builtins(builders.pod(*command))
    container = {**made["spec"]["containers"][0], **spec}
    container["volumeMounts"] = [{"name": volume["name"], **mount} for volume, mount in mounted] + [TOKEN]
    made["spec"] |= {"containers": [container], "volumes": [volume for volume, _ in mounted]}
    return msgspec.convert(made, LocalPod)


async def filled(made: LocalPod, folder: Path, *, objects: Objects) -> Refusal | None:
    async def read(source: Source) -> Mapping[str, bytes] | None:
        return objects.get(str(source))

    return await volume_files.fill(made, folder=folder, read=read)


@pytest.mark.parametrize(
    "volume",
    [
        {"name": "data", "hostPath": {"path": "/home/alice"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "data", "nfs": {"server": "nas", "path": "/"}},
    ],
)
def test_a_volume_that_no_folder_can_be_is_refused(volume: dict[str, Any]) -> None:
    refusal = admission.check(pod((volume, {"mountPath": "/data"})), submitter="alice", user="alice")
    assert refusal is not None
    assert refusal.reason == "UnknownVolume"
    assert refusal.message.startswith(
        "Volume data is no emptyDir, configMap, secret or downwardAPI: the local node has no others. "
    )


@pytest.mark.parametrize("mount", [{"mountPath": "/"}, {"mountPath": "/data", "subPathExpr": "$(POD)"}])
def test_a_place_that_no_folder_can_take_is_refused(mount: dict[str, str]) -> None:
    assert "cannot do" in volumes.problem(pod(({"name": "data", "emptyDir": {}}, mount)))


def test_a_volume_that_nothing_mounts_and_the_accounts_token_do_not_matter() -> None:
    assert volumes.problem(pod()) == ""


async def test_an_empty_volume_is_a_folder_for_its_user_alone(tmp_path: Path) -> None:
    made = pod(({"name": "scratch", "emptyDir": {}}, {"mountPath": "/scratch", "subPath": "run/1"}))
    assert await filled(made, tmp_path, objects={}) is None
    assert (tmp_path / "scratch" / "run" / "1").is_dir()
    assert stat.S_IMODE((tmp_path / "scratch").stat().st_mode) == 0o700


async def test_the_keys_of_a_config_map_are_files(tmp_path: Path) -> None:
    made = pod((CONFIG, {"mountPath": "/etc/train"}))
    assert await filled(made, tmp_path, objects={"ConfigMap lr": {"lr.yaml": b"lr: 0.1\n"}}) is None
    path = tmp_path / "train-config" / "lr.yaml"
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("lr: 0.1\n", 0o600)


async def test_items_name_keys_files_and_modes(tmp_path: Path) -> None:
    source = {"secretName": "keys", "items": [{"key": "start", "path": "bin/start.sh", "mode": 0o755}]}
    made = pod(({"name": "keys", "secret": source}, {"mountPath": "/keys"}))
    assert await filled(made, tmp_path, objects={"Secret keys": {"start": b"exit", "other": b""}}) is None
    assert [each.name for each in (tmp_path / "keys" / "bin").iterdir()] == ["start.sh"]
    path = tmp_path / "keys" / "bin" / "start.sh"
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"exit", 0o700)


async def test_the_second_start_of_a_node_writes_the_files_again(tmp_path: Path) -> None:
    made = pod((CONFIG, {"mountPath": "/etc/train"}))
    for text in (b"first", b"second"):
        assert await filled(made, tmp_path, objects={"ConfigMap lr": {"a": text}}) is None
    assert (tmp_path / "train-config" / "a").read_bytes() == b"second"


@pytest.mark.parametrize(
    ("objects", "items", "problem"),
    [
        ({}, [], "ConfigMap lr is not there"),
        ({"ConfigMap lr": {"a": b""}}, [{"key": "b", "path": "b"}], "ConfigMap lr has no key b"),
    ],
)
async def test_an_object_that_is_not_there_is_named(
    tmp_path: Path, objects: Objects, items: list[dict[str, str]], problem: str
) -> None:
    volume = {"name": "conf", "configMap": {"name": "lr", "items": items}}
    refusal = await filled(pod((volume, {"mountPath": "/conf"})), tmp_path, objects=objects)
    assert refusal == Refusal(reason="NoVolume", message=f"Volume conf cannot be used: {problem}.")


async def test_an_optional_object_may_be_missing(tmp_path: Path) -> None:
    volume = {"name": "conf", "configMap": {"name": "lr", "optional": True}}
    assert await filled(pod((volume, {"mountPath": "/conf"})), tmp_path, objects={}) is None
    assert list((tmp_path / "conf").iterdir()) == []


async def test_a_field_of_the_pod_is_a_file_that_follows_it(tmp_path: Path) -> None:
    quiet = builders.noticed(builders.pod("true"))
    assert await filled(quiet, tmp_path, objects={}) is None
    path = tmp_path / names.NOTICE_VOLUME / "preempting-at"
    volume_files.show_fields(quiet, folder=tmp_path, address="127.0.0.1")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("", 0o600)
    noticed = builders.noticed(builders.pod("true"), at="2026-11-27T05:00:00Z")
    for _ in range(2):
        volume_files.show_fields(noticed, folder=tmp_path, address="127.0.0.1")
        assert path.read_text() == "2026-11-27T05:00:00Z"
    assert [each.name for each in path.parent.iterdir()] == ["preempting-at"]


def test_an_amount_of_the_container_as_a_file_is_refused() -> None:
    source = {"items": [{"path": "cpus", "resourceFieldRef": {"resource": "limits.cpu"}}]}
    found = volumes.problem(pod(({"name": "amounts", "downwardAPI": source}, {"mountPath": "/amounts"})))
    assert found == "Volume amounts has a file of resourceFieldRef, which the local node cannot do."


async def test_a_file_cannot_leave_its_volume(tmp_path: Path) -> None:
    volume = {"name": "conf", "configMap": {"name": "lr", "items": [{"key": "a", "path": "../../out"}]}}
    with pytest.raises(OSError, match="it leaves its volume"):
        await filled(pod((volume, {"mountPath": "/conf"})), tmp_path / "runs", objects={"ConfigMap lr": {"a": b"x"}})
    assert not (tmp_path / "out").exists()


def test_words_variables_and_directory_name_the_folders_and_not_the_mount_paths(tmp_path: Path) -> None:
    made = pod(
        (CONFIG, {"mountPath": "/etc/train/"}),
        ({"name": "lr", "configMap": {"name": "lr"}}, {"mountPath": "/etc/train/lr.yaml", "subPath": "lr.yaml"}),
        command=("train", "--config=/etc/train/a.yaml", "/etc/train/lr.yaml", "/etc/trained", "$(CONFIG)"),
        env=[{"name": "CONFIG", "value": "/etc/train"}],
        workingDir="/etc/train",
    )
    found = launch.launch_of(made, base={}, extra={}, numbers={}, place=builders.place(tmp_path), folder=tmp_path / UID)
    config, one = (f"{tmp_path}/{UID}/{name}" for name in ("train-config", "lr/lr.yaml"))
    words = ["train", f"--config={config}/a.yaml", one, "/etc/trained", config]
    assert [word.decode() for word in found.words] == words
    assert found.directory.decode() == config
    assert found.environment[b"DOVETAIL_VOLUME_TRAIN_CONFIG"].decode() == config


def test_a_folder_that_looks_like_a_mount_path_is_not_replaced_again() -> None:
    mounts = {"/tmp": Path("/tmp/runs/tmp"), "/data": Path("/tmp/runs/data")}
    assert volumes.at_home("/data:/tmp/x", mounts=mounts) == "/tmp/runs/data:/tmp/runs/tmp/x"


@pytest.mark.parametrize(
    ("own", "usual", "mode"),
    [(0o600, 0o640, 0o600), (None, 0o640, 0o640), (None, None, 0o644), (0, 0o640, 0), (None, 0, 0)],
)
def test_the_mode_of_an_item_comes_before_that_of_its_volume(own: int | None, usual: int | None, mode: int) -> None:
    files = {"name": "c", "defaultMode": usual, "items": [{"key": "k", "path": "p", "mode": own}]}
    ((_, volume),) = volumes.mounted(pod(({"name": "v", "configMap": files}, {"mountPath": "/v"})))
    source = volumes.source_of(volume)
    assert source is not None
    assert [each.mode for each in volumes.files_of(source, contents={"k": b""})] == [mode]


async def test_a_volume_that_is_mounted_twice_is_filled_once(tmp_path: Path) -> None:
    asked = list[str]()

    async def read(source: Source) -> Mapping[str, bytes] | None:
        asked.append(str(source))
        return {"a": b"1"}

    made = pod((CONFIG, {"mountPath": "/one"}), (CONFIG, {"mountPath": "/two"}))
    assert await volume_files.fill(made, folder=tmp_path, read=read) is None
    assert asked == ["ConfigMap lr"]
    places = volumes.places(made, folder=tmp_path)
    assert places == {"/one": tmp_path / "train-config", "/two": tmp_path / "train-config"}


async def test_texts_and_bytes_of_a_config_map_are_files() -> None:
    found = msgspec.convert({"data": {"a": "é"}, "binaryData": {"b": b"\xff"}}, volumes.ConfigMapFiles)
    assert found.by_key == {"a": "é".encode(), "b": b"\xff"}


async def test_a_file_that_an_earlier_start_left_unfinished_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "train-config").mkdir()
    (tmp_path / "train-config" / ".a.new").write_text("half")
    made = pod((CONFIG, {"mountPath": "/etc/train"}))
    assert await filled(made, tmp_path, objects={"ConfigMap lr": {"a": b"whole"}}) is None
    assert [path.name for path in (tmp_path / "train-config").iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/data", "/h/data"),
        ("/data/", "/h/data/"),
        ("/data.bak", "/data.bak"),
        ("/data-2", "/data-2"),
        ("/my/data", "/my/data"),
        ("./data", "./data"),
        ("--in=/data,/data/x", "--in=/h/data,/h/data/x"),
    ],
)
def test_only_a_whole_mount_path_is_replaced(text: str, found: str) -> None:
    assert volumes.at_home(text, mounts={"/data": Path("/h/data")}) == found


@pytest.mark.parametrize("files", ["configMap", "secret"])
def test_each_source_is_read_as_what_it_is(files: str) -> None:
    """A Secret's values are bytes in base64, those of a ConfigMap are texts."""
    name = {"configMap": {"name": "o"}, "secret": {"secretName": "o"}}[files]
    ((_, volume),) = volumes.mounted(pod(({"name": "v", files: name}, {"mountPath": "/v"})))
    source = volumes.source_of(volume)
    assert source is not None
    expected = {
        "configMap": ("ConfigMap o", "configmaps", volumes.ConfigMapFiles),
        "secret": ("Secret o", "secrets", volumes.SecretFiles),
    }[files]
    assert (str(source), source.resource.plural, source.as_type) == expected
