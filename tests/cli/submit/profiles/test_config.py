"""`dovetail config`: the file that it keeps, and what it shows."""

import errno
import json
from pathlib import Path

import pytest

from dovetail.kube.errors import Forbidden, NotFound
from dovetail_cli.app import run
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit.profiles import user_file
from dovetail_cli.submit.profiles.effective import effective, of_user
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError
from tests.core.kube.api import Answer, Api

OBJECT = "GET /api/v1/namespaces/default/configmaps/dovetail-profile"
ABSENT = Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "no"})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("DOVETAIL_PROFILE", raising=False)
    return tmp_path / "config" / "dovetail" / "config.yaml"


def config(*words: str) -> int:
    return run("config", arguments=list(words), prog="dovetail config")


def written(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_what_is_set_is_shown_with_its_place(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["image", "train:1"], ["env.LR", "-0.1"], ["volumes", "data:/data", "s:/s:ro"], ["upload", "false"]):
        assert config("set", *words) == 0
    assert capsys.readouterr().out.splitlines()[0] == "Profile default: image is set."
    assert config("show") == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()] == [
        ["Profile", "default"],
        ["KEY", "VALUE", "FROM"],
        ["image", "train:1", str(file)],
        ["env.LR", "-0.1", str(file)],
        ["volumes", "data:/data", "s:/s:ro", str(file)],
        ["upload", "false", str(file)],
    ]
    assert "without the namespace's defaults: " in shown.err
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_value_is_removed_again(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for key in ("env.LR", "env.SEED"):
        assert config("set", key, "1") == 0
    assert (config("unset", "env.LR"), config("unset", "env")) == (0, 0)
    assert (config("unset", "image"), config("unset", "nothing")) == (2, 2)
    assert user_file.load(file).by_name["default"].env == {}
    assert '"image" is not set; set are none' in capsys.readouterr().err


def test_profiles_have_names_and_one_is_current(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert config("use", "vision") == 3
    assert 'no profile "vision"; profiles are default' in capsys.readouterr().err
    assert (config("set", "--profile", "vision", "image", "v"), config("use", "vision")) == (0, 0)
    capsys.readouterr()
    assert config("list", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "vision", "current": True, "values": {"image": "v"}}]
    assert config("list") == 0
    assert capsys.readouterr().out.split() == ["PROFILE", "CURRENT", "KEYS", "vision", "*", "image"]


def test_the_variable_chooses_a_profile_and_the_option_another(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(file, "current: a\nprofiles: {a: {image: a}, b: {image: b}}\n")
    monkeypatch.setenv("DOVETAIL_PROFILE", "b")
    assert (of_user().name, of_user("a").profile.image) == ("b", "a")
    monkeypatch.setenv("DOVETAIL_PROFILE", "c")
    with pytest.raises(MissingError, match=r'\$DOVETAIL_PROFILE: no profile "c"; profiles are a, b'):
        of_user()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["colour", "red"], 'no key "colour"; allowed are image, env'),
        (["image.x", "red"], r'no key "image.x"; entries of a table are env.NAME and node-selector.NAME'),
        (["env", "a"], '"env" holds names and values: set one of them, such as env.LR 0.1'),
        (["image", "a", "b"], "image: 2 values; write one"),
        (["upload", "maybe"], 'upload "maybe": allowed are true and false'),
        (["cpu-fallback", "maybe"], 'cpu-fallback "maybe": write true (where no GPU could ever serve the job), false'),
        (["--profile", "a b", "image", "x"], '--profile "a b": write up to 63 letters'),
    ],
)
def test_what_cannot_be_set_is_one_sentence(
    file: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert config("set", *words) == 2
    assert told in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("profiles: [", "expected YAML with the keys current and profiles"),
        ("[" * 5000, "expected YAML with the keys current and profiles"),
        ("current: !!int abc", "expected YAML"),
        ("- a", "expected YAML"),
        ("profile: {}", 'unknown key "profile"; allowed are current, profiles'),
        ("current: 5", 'current "5": write the name of a profile'),
        ("profiles: [a]", r'profiles "\[a\]": write names and profiles'),
        ("profiles: {a: {image: 5}}", 'profile "a": image "5": write an image'),
        ("\x00", "expected YAML"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence_with_its_name(file: Path, text: str, told: str) -> None:
    written(file, text)
    with pytest.raises(UsageError, match=f"^{file}: {told}"):
        user_file.load(file)


def test_a_file_that_cannot_be_written_is_named(file: Path) -> None:
    file.parent.parent.mkdir()
    file.parent.write_text("a file, no folder")
    with pytest.raises(CommandError, match=f"{file}: the profile cannot be written"):
        user_file.save(user_file.Profiles(), path=file)


def test_a_full_disk_leaves_the_profiles_as_they_were(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(file, "current: mine\n")

    def full(*_args: object, **_options: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("yaml.safe_dump", full)
    with pytest.raises(CommandError, match=f"{file}: the profile cannot be written: No space left on device"):
        user_file.save(user_file.Profiles(), path=file)
    assert ([each.name for each in file.parent.iterdir()], file.read_text()) == ([file.name], "current: mine\n")


async def test_the_users_values_count_over_the_namespaces(file: Path, api: Api, cluster: Cluster) -> None:
    written(file, "profiles: {default: {image: mine, env: {LR: '1'}}}")
    defaults = "image: theirs\nenv: {SEED: '7'}\nworkdir: /data\n"
    api.answer(OBJECT, Answer(body={"metadata": {"name": "dovetail-profile"}, "data": {"profile.yaml": defaults}}))
    found = await effective(cluster)
    assert (found.profile.image, found.profile.workdir) == ("mine", "/data")
    assert found.profile.env == {"LR": "1", "SEED": "7"}
    theirs = "ConfigMap default/dovetail-profile"
    assert found.sources == {"image": str(file), "env": f"{file} and {theirs}", "workdir": theirs}


@pytest.mark.parametrize("refusal", [NotFound, Forbidden])
async def test_a_namespace_without_defaults_or_the_right_to_read_them_has_none(
    file: Path, api: Api, cluster: Cluster, refusal: type[NotFound | Forbidden]
) -> None:
    code = 404 if refusal is NotFound else 403
    api.answer(OBJECT, Answer(status=code, body={"code": code, "reason": refusal.__name__, "message": "no"}))
    assert (await effective(cluster)).sources == {}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "it has no key profile.yaml, which holds the profile"),
        ({"profile.yaml": "image: ["}, "profile.yaml is not YAML"),
        ({"profile.yaml": "image: 5"}, 'image "5": write an image'),
    ],
)
async def test_wrong_defaults_of_a_namespace_name_the_object(
    file: Path, api: Api, cluster: Cluster, data: dict[str, str], told: str
) -> None:
    api.answer(OBJECT, Answer(body={"metadata": {"name": "dovetail-profile"}, "data": data}))
    with pytest.raises(UsageError, match=f"^ConfigMap default/dovetail-profile: {told}"):
        await effective(cluster)
