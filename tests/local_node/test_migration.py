"""The walks of docs/migration.md on one machine, as the page has them: each ends with what a user's program wrote."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_sandbox import cluster
from tests.agent.nvml_stub import Scenario, built
from tests.local_node.machine import Machine, empty_machine
from tests.migration_page import TRANSLATION, walk

pytestmark = pytest.mark.cluster

# A user's program, which refuses what it does not know.
PROGRAM = """
import argparse, os
options = argparse.ArgumentParser()
for name in {names}:
    options.add_argument(name, required=True)
args = vars(options.parse_args())
for name in {reads}:
    assert os.path.exists(args[name]), args[name]
out = args["out"]
if not out.endswith(".txt"):
    os.makedirs(out)
    out += "/model.txt"
with open(out, "w") as file:
    print("{name}", "GPU", os.environ["CUDA_VISIBLE_DEVICES"], "in", os.environ["OF_THE_SHELL"], file=file)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with two cards on which nothing is up yet."""
    folder = tmp_path_factory.mktemp("machine")
    scenario = folder / "scenario"
    scenario.write_text(Scenario().text())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {"LD_LIBRARY_PATH": str(built()), "NVML_STUB_SCENARIO": str(scenario), "PATH": path}
    with empty_machine(folder, **variables) as made:
        yield made


def program(folder: Path, *, name: str, options: list[str], reads: list[str]) -> None:
    text = PROGRAM.format(name=name, names=[f"--{each}" for each in options], reads=reads)
    (folder / f"{name}.py").write_text(text)


def typed(text: str, *, machine: Machine, folder: Path) -> str:
    """What commands print that a user types into a shell in a folder; they must do what they are asked."""
    done = subprocess.run(
        ["bash", "-ec", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=400,
        cwd=folder, env={**machine.environment, "OF_THE_SHELL": folder.name},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_gflows_user_gets_what_two_programs_wrote(machine: Machine) -> None:
    folder = machine.work / "project"
    folder.mkdir()
    program(folder, name="train", options=["out"], reads=[])
    program(folder, name="check", options=["model", "out"], reads=["model"])
    printed = typed(walk("gflow"), machine=machine, folder=folder)
    assert (folder / "model.txt").read_text() == "train GPU 0 in project\n"
    assert printed.endswith("train GPU 0 in project\ncheck GPU  in project\n")


def test_the_model_services_user_gets_the_model_that_the_training_wrote(machine: Machine) -> None:
    folder = machine.work / "service"
    (folder / "data" / "train").mkdir(parents=True)
    program(folder, name="train", options=["data", "out"], reads=["data"])
    first, *calls = walk("service").splitlines()
    printed = typed(first, machine=machine, folder=folder)
    url = cluster.get().status().gateway
    assert url in printed
    printed = typed("\n".join(calls).replace("http://localhost:8000", url), machine=machine, folder=folder)
    # The device has its number once the node has reported that the task runs.
    assert re.search(r'"status":"running","device":"cuda(:\d)?"', printed)
    # The shell of the user is another one than that of the first `gflowd up`.
    assert re.fullmatch(r"train GPU [01] in service\n", (folder / "models" / "first" / "model.txt").read_text())


@pytest.mark.parametrize("name", ["gflow", "service", "v1", "v2"])
def test_the_translation_has_the_same_commands(name: str) -> None:
    assert walk(name, page=TRANSLATION) == walk(name)
