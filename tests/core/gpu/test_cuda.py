"""What a program is built for, and what a driver supports."""

import pytest

from dovetail.gpu import cuda
from dovetail.gpu.cuda import Built, CudaVersion


@pytest.mark.parametrize(
    ("image", "variables", "found"),
    [
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", {}, "12.4"),
        ("registry.example/team/pytorch:2.4.0-cuda12.4-cudnn9-runtime", {}, "12.4"),
        ("python:3.12", {}, None),
        ("cuda", {}, None),
        ("nvidia/cuda:latest", {"CUDA_VERSION": "11.8.0"}, "11.8"),
        ("python:3.12", {"NVIDIA_REQUIRE_CUDA": "cuda>=12.6 brand=tesla,driver>=470,driver<471"}, "12.6"),
        ("nvidia/cuda:12.4.1", {"NVIDIA_REQUIRE_CUDA": "", "CUDA_VERSION": "twelve"}, "12.4"),
    ],
)
def test_variables_and_the_image_s_name_say_what_a_container_is_built_for(
    image: str, variables: dict[str, str], found: str | None
) -> None:
    built = cuda.built_for(image=image, variables=variables)
    assert (None if built is None else str(built.version)) == found


def test_the_source_is_named() -> None:
    assert cuda.built_for(image="nvidia/cuda:12.4.1", variables={}) == Built(
        CudaVersion(12, 4), "image nvidia/cuda:12.4.1"
    )


@pytest.mark.parametrize(
    ("driver", "supported"),
    [("550.54.15", "12.4"), ("552.10", "12.4"), ("580.65.06", "13.0"), ("440.33", None), ("900.1", None), ("", None)],
)
def test_a_driver_supports_the_version_of_its_branch(driver: str, supported: str | None) -> None:
    found = cuda.of_driver(driver)
    assert (None if found is None else str(found)) == supported


@pytest.mark.parametrize(
    ("built", "driver", "words"),
    [((11, 8), (12, 4), ""), ((12, 4), (12, 4), ""), ((12, 6), (12, 4), "may fail"), ((13, 0), (12, 4), "not start")],
)
def test_a_newer_major_version_does_not_start_and_a_newer_minor_one_may_fail(
    built: tuple[int, int], driver: tuple[int, int], words: str
) -> None:
    why = cuda.problem(CudaVersion(*built), driver=CudaVersion(*driver))
    assert words in why
    assert bool(why) == bool(words)


def test_the_remedy_names_the_driver_and_the_older_cuda() -> None:
    fix = cuda.remedy(CudaVersion(12, 6), driver=CudaVersion(12, 4), instead="an image")
    assert fix == "install a driver of branch 560 or newer, or use an image for CUDA 12.4"
    beyond = cuda.remedy(CudaVersion(14, 0), driver=CudaVersion(12, 4), instead="an image")
    assert beyond.startswith("install a driver that supports CUDA 14.0, ")
