"""gbatch's options take precedence over the profile's values."""

from dataclasses import replace

import pytest

from dovetail.gpu.request import parse
from dovetail_cli.submit.manifest import Fallback, Submission
from dovetail_cli.submit.pod_options import Volume
from dovetail_cli.submit.profiles.apply import with_defaults
from dovetail_cli.submit.profiles.profile import Profile
from dovetail_cli.ui.errors import UsageError

PROFILE = Profile(
    image="train:1",
    env={"LR": "0.1", "SEED": "7"},
    volumes=(Volume(claim="data", path="/data"), Volume(claim="home", path="/home")),
    workdir="/data/runs",
    node_selector={"disk": "nvme", "zone": "a"},
)
PLAIN = Submission(name="train", command=["python", "train.py"], request=None)


def test_what_no_option_sets_is_the_profiles() -> None:
    found = with_defaults(PLAIN, profile=PROFILE)
    assert (found.image, found.workdir) == ("train:1", "/data/runs")
    assert (found.env, found.node_selector) == (PROFILE.env, PROFILE.node_selector)
    assert found.volumes == PROFILE.volumes


def test_options_count_over_the_profile() -> None:
    given = replace(
        PLAIN,
        image="mine",
        workdir="/app",
        env={"LR": "1"},
        volumes=(Volume(claim="fast", path="/data"),),
        node_selector={"disk": "any"},
    )
    found = with_defaults(given, profile=PROFILE)
    assert (found.image, found.workdir) == ("mine", "/app")
    assert found.env == {"LR": "1", "SEED": "7"}
    assert found.node_selector == {"disk": "any", "zone": "a"}
    assert [str(each) for each in found.volumes] == ["fast:/data", "home:/home"]


def test_a_job_with_gpus_falls_back_on_the_cpu_as_its_option_or_else_the_profile_says() -> None:
    profile = replace(PROFILE, cpu_fallback=Fallback(on_no_gpu="RunOnCPU", after_seconds=60))
    asks = replace(PLAIN, request=parse("1"))
    waits = replace(asks, fallback=Fallback(on_no_gpu="Wait"))
    assert with_defaults(asks, profile=profile).fallback == profile.cpu_fallback
    assert with_defaults(waits, profile=profile).fallback == waits.fallback
    assert with_defaults(PLAIN, profile=profile).fallback == Fallback()
    assert with_defaults(asks, profile=PROFILE).fallback == Fallback()


def test_a_job_without_an_image_is_told_how_to_set_one() -> None:
    with pytest.raises(UsageError, match=r"no container image: name one with --image.*dovetail config set image"):
        with_defaults(PLAIN, profile=Profile())


def test_simulated_nodes_need_no_image() -> None:
    assert with_defaults(PLAIN, profile=Profile(), simulated=True).image == "busybox:1.37"
