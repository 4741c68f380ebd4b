"""What the doctor says of a machine's frameworks, from files as the frameworks install them."""

from pathlib import Path

import pytest

from dovetail_cli.doctor import frameworks

TORCH = "__version__ = '2.4.0'\ndebug = False\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = {hip}\n"
TENSORFLOW = "build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('is_rocm_build', False)])\n"


def torch(prefix: Path, *, cuda: str = "None", hip: str = "None") -> None:
    file = prefix / "lib/python3.11/site-packages/torch/version.py"
    file.parent.mkdir(parents=True)
    file.write_text(TORCH.format(cuda=cuda, hip=hip))


@pytest.mark.parametrize(
    ("cuda", "driver", "level", "words"),
    [
        ("'12.4'", "550.54.15", "ok", "is built for CUDA 12.4; the driver supports 12.4"),
        ("'11.8'", "550.54.15", "ok", "is built for CUDA 11.8"),
        ("'12.6'", "550.54.15", "warning", "may fail"),
        ("'13.0'", "550.54.15", "error", "CUDA does not start"),
        ("None", "550.54.15", "warning", "is built without CUDA: it uses no GPU"),
        ("'12.4'", "999.1", "ok", "is built for CUDA 12.4"),
    ],
)
def test_pytorch_is_judged_by_its_cuda_and_the_driver(
    tmp_path: Path, cuda: str, driver: str, level: str, words: str
) -> None:
    torch(tmp_path / "venv", cuda=cuda)
    (finding,) = frameworks.judge(tmp_path, driver_version=driver, prefixes=[tmp_path / "venv"])
    assert (finding.level, finding.check) == (level, "framework")
    assert words in finding.message
    assert f"PyTorch in {tmp_path}/venv/lib/python3.11/site-packages" in finding.message
    assert bool(finding.fix) == (level != "ok")


def test_tensorflow_of_the_system_is_judged_too_and_each_folder_once(tmp_path: Path) -> None:
    file = tmp_path / "usr/lib/python3/dist-packages/tensorflow/python/platform/build_info.py"
    file.parent.mkdir(parents=True)
    file.write_text(TENSORFLOW)
    (finding,) = frameworks.judge(tmp_path, driver_version="535.1", prefixes=[tmp_path / "usr", tmp_path / "none"])
    assert "CUDA 12.5 and the driver supports 12.2" in finding.message
    assert "branch 555 or newer, or use a build for CUDA 12.2" in finding.fix


def test_a_build_for_rocm_is_no_matter_of_cuda(tmp_path: Path) -> None:
    torch(tmp_path, hip="'6.1'")
    assert list(frameworks.judge(tmp_path, driver_version="550.54.15", prefixes=[tmp_path])) == []


def test_a_framework_that_is_reached_by_several_names_is_judged_once(tmp_path: Path) -> None:
    torch(tmp_path / "venv", cuda="None")
    (tmp_path / "venv/lib64").symlink_to("lib")
    (tmp_path / "same").symlink_to("venv")
    prefixes = [tmp_path / "venv", tmp_path / "same", tmp_path / "venv"]
    assert len(list(frameworks.judge(tmp_path, driver_version="550.54.15", prefixes=prefixes))) == 1
