"""How an explanation is printed, and how errors name its options."""

import csv
import io
import json

import pytest
import yaml

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.cluster.objects import ClusterObjects
from dovetail.query.errors import InvalidQueryError
from dovetail.query.explain import subjects
from dovetail.query.explain.requests import of_request
from dovetail.query.explain.rows import explanation_row
from dovetail_cli.app import main
from dovetail_cli.explain import reads, render
from tests.cli.builders import make_gpunode
from tests.core.explain.builders import make_node
from tests.core.query.explain.test_explain import SETTINGS, ask, explain, filled, raw_pod

GOLDEN = """\
Pod default/p waits: Need 2 GPUs, only 1 available

What would have to change:
  - frees on a when job 17 ends, at the latest 2026-11-21T12:00:30Z
  - frees on b when job 18 ends
  - ask for at most 1 GPU instead of 2: 1 fits on b

NODES  REASON       WHY
2      DevicesBusy  need 2 GPUs free, too many are busy
1      Taint        the taint team=vision:NoSchedule is not tolerated

NODE  ANSWER       SCORE  WHY
a     DevicesBusy         Need 2 GPUs, only 0 available: need 2 GPUs free, too many are busy
b     DevicesBusy         Need 2 GPUs, only 1 available: need 2 GPUs free, too many are busy
t     Taint               the taint team=vision:NoSchedule is not tolerated"""


def test_the_text_goes_from_the_sentence_down_to_the_nodes() -> None:
    found = explain(subjects.of_pod(raw_pod(), settings=SETTINGS), filled())
    assert render.render(explanation_row(found), form="table", everything=False) == GOLDEN


def test_many_nodes_are_cut_in_the_text_only() -> None:
    nodes = [make_node(f"n{at:02d}") for at in range(30)]
    gpunodes = [make_gpunode(f"n{at:02d}") for at in range(30)]
    found = explain(ask("1"), ClusterObjects(nodes=nodes, gpunodes=gpunodes, pods=[], jobs=[], settings=SETTINGS))
    text = render.render(explanation_row(found), form="table", everything=False)
    assert "… and 10 more nodes: --all shows them, -o json has everything" in text
    assert "n29" in render.render(explanation_row(found), form="table", everything=True)
    assert len(json.loads(render.render(explanation_row(found), form="json", everything=False))["nodes"]) == 30


def test_json_and_yaml_have_the_same_and_csv_a_row_for_each_node() -> None:
    found = explain(ask("1"), filled())
    record = json.loads(render.render(explanation_row(found), form="json", everything=False))
    assert record == yaml.safe_load(render.render(explanation_row(found), form="yaml", everything=False))
    (row, *_) = csv.DictReader(io.StringIO(render.render(explanation_row(found), form="csv", everything=False)))
    assert (row["node"], row["fits"], row["devices"]) == ("b", "True", "GPU-b-1")


def test_a_bound_pod_is_told_with_what_is_around_it() -> None:
    picture = filled()
    raw = values_of(picture.pods[1])
    raw["spec"]["schedulerName"] = names.SCHEDULER_NAME
    raw["spec"]["containers"][0]["resources"] = {"requests": {names.GPU_MILLI: "1000"}}
    found = explain(subjects.of_pod(raw, settings=SETTINGS), picture)
    text = render.render(explanation_row(found), form="table", everything=False)
    assert text.splitlines()[0] == "Pod default/other-0 is on b with GPU 0"
    assert text.splitlines()[-2:] == [
        "b     0    V100   0/32768 MiB  In use by job 18",
        "b     1    V100   0/32768 MiB  Available",
    ]


def test_one_job_is_explained_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "1-3"]) == 2
    assert 'JOB "1-3": name one job' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"mode": "Fast"}, '--mode "Fast"'), ({"memory": "-1Gi"}, '--memory-host "-1Gi": must not be negative')],
)
def test_an_error_names_the_option(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidQueryError, match=sentence):
        of_request("2", settings=SETTINGS, field=reads.option_of, **options)  # type: ignore[arg-type]


def test_a_request_that_cannot_be_read_is_named_as_the_argument() -> None:
    with pytest.raises(InvalidQueryError, match=r'^REQUEST "1\.5": a number of GPUs above 1 must be whole'):
        of_request("1.5", settings=SETTINGS, field=reads.option_of)
