"""The examples that people copy are jobs that the operator can run."""

from pathlib import Path

import pytest
import yaml

from dovetail.api.gpujob import GPUJob, job_of
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.pods.demand import ask_of_job
from dovetail_operator.manifests.batch_job import build_job

FILES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.yaml"))
EXAMPLES = [path for path in FILES if "kind: GPUJob" in path.read_text(encoding="utf-8")]


def read(path: Path) -> list[GPUJob]:
    return [job_of(each) for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_makes_a_job(path: Path) -> None:
    for job in read(path):
        ask = ask_of_job(job, ranking=DEFAULT_RANKING)
        assert build_job(job, ask=ask, number=1)["spec"]["completions"] == job.spec.workers
