"""The guides, and the two places at which their blocks run; the audit ends each."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dovetail_cli.cluster import audit
from dovetail_sandbox import cluster
from tests.agent.nvml_stub import Scenario, built
from tests.cluster.sandboxes import sandbox_with
from tests.guides.manifest import ROOT, folder, guides, manifest, text_of
from tests.guides.place import Place, place_at
from tests.local_node.machine import empty_machine
from tests.polling import until

LEGACY = "gateway.legacyServiceAccount=guides"
TRAIN = "python train.py --data {train_path} --out {save_path}"
INFER = "python infer.py {cfg_path} {weight_path} {source_path}"
CARDS = Scenario(
    cards=4, model="Tesla V100-SXM2-32GB", figures={card: {"total": 32768, "major": 7} for card in range(4)}
)


@pytest.fixture(autouse=True, scope="session")
def there() -> None:
    """The guides are on this machine, and must be where DOVETAIL_GUIDES names them."""
    if guides():
        return
    message = f"NOT COMPARED WITH THE GUIDES: none are in {folder()}; set DOVETAIL_GUIDES to their folder"
    if "DOVETAIL_GUIDES" in os.environ:
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The queue of a machine with four GPUs."""
    home = tmp_path_factory.mktemp("local")
    scenario = home / "scenario"
    scenario.write_text(CARDS.text())
    variables = {"LD_LIBRARY_PATH": str(built()), "NVML_STUB_SCENARIO": str(scenario)}
    with empty_machine(home, **variables) as machine:
        for name in ("train.py", "infer.py"):
            (machine.work / name).write_text(Path(__file__).with_name("user_script.py").read_text())
        machine("gflowd", "up", "--train", TRAIN, "--infer", INFER)
        (home / ".local").mkdir()
        (home / ".local" / "share").symlink_to(machine.environment["XDG_DATA_HOME"])
        (home / ".cache").symlink_to(Path.home() / ".cache")
        yield place_at(cluster.get(), work=machine.work, **{**machine.environment, "HOME": str(home)})
        assert not audit.prove(kubeconfig=str(cluster.get().kubeconfig), context=None).items


@pytest.fixture(autouse=True)
def cleared(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing of a block stays for the next one, however its test ends."""
    names = [name for name in ("local", "sandbox") if name in request.fixturenames]
    places: list[Place] = [] if "played" in request.fixturenames else [request.getfixturevalue(name) for name in names]
    yield
    for place in places:
        place.clear()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cluster with the nodes that the guides name."""
    with sandbox_with(nodes_file=Path(__file__).with_name("nodes.yaml"), overrides=[LEGACY]) as made:
        yield place_at(made, work=tmp_path_factory.mktemp("sandbox"), KUBECONFIG=str(made.kubeconfig))
        assert not audit.prove(kubeconfig=str(made.kubeconfig), context=None).items


@pytest.fixture(scope="module")
def played(sandbox: Place) -> Callable[[str], Mapping[int, dict[str, Any]]]:
    """The outcomes of a guide's Python, which runs once, block after block, with the import paths of before."""

    @cache
    def play(guide: str) -> Mapping[int, dict[str, Any]]:
        wanted = [each for each in manifest() if (each.guide, each.run) == (guide, "python")]
        blocks = [
            {
                "name": each.name,
                "text": text_of(each).replace("http://localhost:8000", sandbox.url),
                "given": each.given,
                "looks": [*(each.values or {}), *each.types],
            }
            for each in wanted
        ]
        # The guide reads a load.
        sandbox.bash("gbatch --gpus '2(A100)' sleep 600")
        until(lambda: sandbox.ask("GET", "/api/v1/gpu/status")["utilization"]["gpu_memory_usage"] > 0)
        known = {"DOVETAIL_GATEWAY": sandbox.url, "PYTHONPATH": f"{ROOT / 'legacy'}:{ROOT}"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.guides.notebook"], input=json.dumps(blocks), capture_output=True, text=True,
            check=False, cwd=sandbox.work, env={**sandbox.environment, **known}, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sandbox.clear()
        return dict(zip((each.at for each in wanted), json.loads(done.stdout), strict=True))

    return play
