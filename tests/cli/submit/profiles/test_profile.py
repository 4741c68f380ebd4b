"""Profiles: their values, what is refused and in which words, and which of two counts."""

from typing import Any

import pytest

from dovetail_cli.submit.manifest import Fallback
from dovetail_cli.submit.pod_options import Volume
from dovetail_cli.submit.profiles import edit
from dovetail_cli.submit.profiles.profile import KEYS, Profile, decode, encode, over
from dovetail_cli.ui.errors import UsageError

FULL: dict[str, Any] = {
    "image": "r.example:5000/train:1",
    "env": {"LR": "0.1", "EMPTY": ""},
    "volumes": ["data:/data", "scratch:/scratch:ro"],
    "workdir": "/data/runs",
    "node-selector": {"topology.kubernetes.io/zone": "a"},
    "gateway": "https://gpu.example.org/dovetail",
    "upload": False,
    "cpu-fallback": "1800s",
}


def test_every_key_is_read_and_written() -> None:
    profile = decode(FULL, where="file")
    assert profile.volumes == (
        Volume(claim="data", path="/data"),
        Volume(claim="scratch", path="/scratch", read_only=True),
    )
    assert (profile.gateway, profile.upload) == ("https://gpu.example.org/dovetail", False)
    assert encode(profile) == FULL
    assert set(FULL) == set(KEYS)


@pytest.mark.parametrize(
    ("value", "fallback", "written"),
    [
        (True, ("RunOnCPU", None), True),
        (False, ("Wait", None), False),
        ("30m", ("RunOnCPU", 1800), "1800s"),
        (90, ("RunOnCPU", 90), "90s"),
        ("0", ("RunOnCPU", 0), "0s"),
    ],
)
def test_a_fallback_on_the_cpu_is_a_word_or_a_wait(value: Any, fallback: tuple[str, int | None], written: Any) -> None:
    profile = decode({"cpu-fallback": value}, where="file")
    assert profile.cpu_fallback is not None
    assert (profile.cpu_fallback.on_no_gpu, profile.cpu_fallback.after_seconds) == fallback
    assert encode(profile) == {"cpu-fallback": written}
    assert decode(encode(profile), where="file") == profile


def test_nothing_is_a_profile_too() -> None:
    assert decode(None, where="file") == decode({}, where="file") == Profile()
    assert encode(Profile()) == {}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("image", 'file: "image": write keys and values; allowed are image, env, volumes'),
        ({"images": "a"}, 'file: unknown key "images"; allowed are image, env, volumes, workdir'),
        ({"image": "a b"}, 'file: image "a b": write an image without blanks'),
        ({"image": 5}, 'file: image "5": write an image'),
        ({"env": {"LR": 0.1}}, "file: env.LR \"0.1\": write names and texts, numbers in quotes, such as {LR: '0.1'}"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, 'file: env.CUDA_VISIBLE_DEVICES "0": .*Dovetail sets the variables'),
        ({"env": {"A=B": "0"}}, 'file: env.A=B "0"'),
        ({"env": ["LR"]}, r'file: env "\[LR\]": write names and texts'),
        ({"volumes": "data:/data"}, 'file: volumes "data:/data": write a list of PersistentVolumeClaims'),
        ({"volumes": ["a:/x", "b:/x"]}, "each path once"),
        ({"workdir": "runs"}, 'file: workdir "runs": write an absolute path of the container'),
        ({"workdir": "/data/.."}, "write an absolute path of the container below /"),
        ({"node-selector": {"disk": "a,b=c"}}, 'file: node-selector.disk "a,b=c": write labels'),
        ({"gateway": "gpu.example.org"}, 'file: gateway "gpu.example.org": write an address such as https://'),
        ({"gateway": "https://user@gpu.example.org"}, "without user and query"),
        ({"gateway": "http://[::1"}, "write an address"),
        ({"cpu-fallback": "soon"}, 'file: cpu-fallback "soon": write true .*, false, or a wait for busy GPUs such as'),
        ({"cpu-fallback": -1}, 'file: cpu-fallback "-1": write true'),
        ({"upload": "no"}, 'file: upload "no": allowed are true and false'),
        ({"image": "a b" + "x" * 1000}, r'image "a bx+\.\.\.":'),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_sentence_with_key_value_and_what_is_allowed(values: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        decode(values, where="file")


def test_the_first_of_two_counts_and_tables_are_merged() -> None:
    theirs = decode({**FULL, "env": {"LR": "1", "SEED": "7"}}, where="theirs")
    own = decode({"image": "mine", "env": {"LR": "2"}, "volumes": ["home:/data"], "upload": True}, where="own")
    both = over(own, second=theirs)
    assert (both.image, both.workdir, both.upload) == ("mine", "/data/runs", True)
    assert both.env == {"LR": "2", "SEED": "7"}
    assert [str(each) for each in both.volumes] == ["home:/data", "scratch:/scratch:ro"]
    assert over(Profile(), second=theirs) == theirs


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [(None, None, None), (None, False, False), (None, True, True), (False, True, False), (True, False, True)],
)
def test_of_two_profiles_the_first_that_says_so_decides_about_the_directory(
    first: bool | None, second: bool | None, found: bool | None
) -> None:
    assert over(Profile(upload=first), second=Profile(upload=second)).upload is found


def test_what_two_profiles_name_is_merged_and_the_first_one_counts() -> None:
    first = Profile(
        image="a", env={"X": "1"}, volumes=(Volume(claim="own", path="/data"),), node_selector={"disk": "nvme"},
        cpu_fallback=Fallback(on_no_gpu="Wait"),
    )  # fmt: skip
    second = Profile(
        image="b", env={"X": "2", "Y": "3"}, workdir="/data/runs", node_selector={"disk": "any", "zone": "z"},
        volumes=(Volume(claim="theirs", path="/data"), Volume(claim="home", path="/home")), gateway="http://gw",
        cpu_fallback=Fallback(on_no_gpu="RunOnCPU"),
    )  # fmt: skip
    found = over(first, second=second)
    assert (found.image, found.workdir, found.gateway) == ("a", "/data/runs", "http://gw")
    assert (found.env, found.node_selector) == ({"X": "1", "Y": "3"}, {"disk": "nvme", "zone": "z"})
    assert [(each.claim, each.path) for each in found.volumes] == [("own", "/data"), ("home", "/home")]
    assert found.cpu_fallback == Fallback(on_no_gpu="Wait")


def test_the_last_entry_of_a_table_takes_the_table_with_it() -> None:
    profile = Profile(env={"X": "1", "Y": "2"})
    one = edit.without(profile, key="env.X")
    assert edit.entries_of(one) == {"env.Y": "2"}
    none = edit.without(one, key="env.Y")
    assert edit.entries_of(none) == {}
    with pytest.raises(UsageError, match='"env" is not set; set are none'):
        edit.without(none, key="env")
