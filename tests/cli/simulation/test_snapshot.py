"""`dovetail snapshot` out of a picture of the cluster, and `dovetail simulate` on it."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dovetail import names
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.simulator.snapshot import Snapshot, parse, to_json, to_yaml
from dovetail_cli.app import main
from dovetail_cli.simulation.snapshot import check_file, check_form, snapshot_of, summary, write
from dovetail_cli.ui.errors import MissingError, UsageError
from tests.cli.builders import NOW, make_gpunode, make_pod
from tests.core.explain.builders import make_node
from tests.core.query.explain.test_explain import job_pod, make_job
from tests.core.simulator.builders import PODS


def make_picture() -> ClusterObjects:
    """Node a with a job and a notebook on it, b without devices, a job that waits and one that nobody can read."""
    notebook = make_pod("notebook", node="a", held=((1, 250, 8192),), mode="Fractional")
    host = make_pod("host", node="b", asks={"cpu": "3", "memory": "2Gi"})
    ended = make_pod("ended", node="a", held=((0, 1000, 1),), phase="Succeeded")
    waiting = make_pod("waiting", node="", asks={names.GPU_MILLI: "2000"}, phase="Pending")
    return ClusterObjects(
        nodes=[make_node("b"), make_node("a", cordoned=False)],
        gpunodes=[make_gpunode("a")],
        pods=[job_pod("train", 1, node="a", devices=1), notebook, host, ended, waiting],
        jobs=[
            make_job("train"),
            make_job("waits", number=2, phase="Queued", gpu="0.5(V100)"),
            make_job("bad", gpu="?"),
        ],
        settings=Settings(),
    )


def make_snapshot(salt: str = "") -> Snapshot:
    return snapshot_of(make_picture(), now=NOW, salt=salt)


def test_it_holds_nodes_claims_and_jobs() -> None:
    taken = make_snapshot()
    assert taken.taken_at == "2026-11-21T12:00:00Z"
    assert [(node.name, len(node.devices), node.other_cpu_milli, node.other_memory_mib) for node in taken.nodes] == [
        ("a", 2, 0, 0), ("b", 0, 3000, 2048),
    ]  # fmt: skip
    assert [(claim.pod, claim.job, [share.share_milli for share in claim.devices]) for claim in taken.claims] == [
        ("train-0", "train", [1000]), ("notebook", "", [250]),
    ]  # fmt: skip
    assert [(job.kind, job.name, job.phase, job.request) for job in taken.jobs] == [
        ("GPUJob", "train", "Running", "1"),
        ("GPUJob", "waits", "Queued", "0.5(V100)"),
        ("Pod", "waiting", "Queued", "2"),
    ]  # fmt: skip
    assert summary(taken) == "2 nodes with 2 GPUs, 2 pods that hold some, 3 jobs of which 2 wait"


@pytest.mark.parametrize("form", [to_json, to_yaml])
def test_it_reads_back_exactly(form) -> None:
    taken = make_snapshot()
    assert parse(form(taken), source="s") == taken


def test_an_anonymous_one_names_nobody_and_still_fits_together() -> None:
    plain, hidden = make_snapshot(), make_snapshot(salt="s")
    text = to_json(hidden)
    for name in ("train", "waits", "notebook", "waiting", "GPU-a-0", '"a"', '"b"', '"default"'):
        assert name not in text
    nodes = {node.name for node in hidden.nodes}
    assert {claim.node for claim in hidden.claims} <= nodes
    assert hidden.claims[0].job == hidden.jobs[0].name
    assert [claim.devices for claim in hidden.claims] == [claim.devices for claim in plain.claims]
    assert make_snapshot(salt="other").nodes[0].name not in nodes


def test_nothing_of_commands_or_environment_is_in_it() -> None:
    record = json.loads(to_json(make_snapshot()))
    assert list(record) == ["snapshot", "takenAt", "anonymous", "turnsPerDevice", "nodes", "claims", "jobs"]
    assert not {"template", "command", "env", "image"} & {key for job in record["jobs"] for key in job}


@pytest.mark.parametrize(
    ("form", "file", "chosen"),
    [
        (None, None, "json"),
        (None, "x.yml", "yaml"),
        (None, "x.yaml", "yaml"),
        (None, "x", "json"),
        ("yaml", "x", "yaml"),
    ],
)
def test_the_form_is_what_is_asked_or_what_the_file_is_called(form, file, chosen) -> None:
    assert check_form(form, file=None if file is None else Path(file)) == chosen


def test_a_form_or_a_folder_that_is_not_there_is_told_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match='-o "csv": unknown format, allowed are json, yaml'):
        check_form("csv", file=None)
    with pytest.raises(MissingError, match="there is no folder nowhere"):
        check_file("nowhere/x.json")


def make_partitioned() -> Snapshot:
    """Node a with two instances, one of them held by a notebook, and a job that waits for two."""
    picture = ClusterObjects(
        nodes=[make_node("a")],
        gpunodes=[make_gpunode("a", mig_profile="1g.5gb")],
        pods=[make_pod("notebook", node="a", held=((1, 1000, 5120),), mode="Exclusive")],
        jobs=[make_job("waits", number=2, phase="Queued", gpu="2x1g.5gb"), make_job("gpu", phase="Queued")],
        settings=Settings(),
    )
    return snapshot_of(picture, now=NOW)


def test_mig_instances_are_in_it() -> None:
    taken = make_partitioned()
    assert [device.mig_profile for node in taken.nodes for device in node.devices] == ["1g.5gb", "1g.5gb"]
    assert [[share.index for share in claim.devices] for claim in taken.claims] == [[1]]
    assert summary(taken) == "1 nodes with 0 GPUs and 2 MIG instances, 1 pods that hold some, 2 jobs of which 2 wait"
    assert parse(to_json(taken), source="s") == taken


def test_the_instances_of_a_profile_are_simulated(tmp_path, capsys) -> None:
    path = tmp_path / "mig.json"
    path.write_text(to_json(make_partitioned()))
    given = ["simulate", "--snapshot", str(path), "--policy", "ph"]
    assert main([*given, "--mig-profile", "1G.5GB"]) == 0
    text = capsys.readouterr().out
    assert "1 nodes with 2 MIG instances of 1g.5gb, 50.0 % of them taken when it begins" in text
    assert "Left out: 1 waiting pod that request other devices." in text
    assert main(given) == 2
    assert "no node has a GPU that could be used" in capsys.readouterr().err
    assert main([*given, "--mig-profile", "3g.20gb"]) == 2
    assert "no node has a MIG instance of 3g.20gb that could be used" in capsys.readouterr().err


def test_it_is_printed_or_written_with_a_word_on_what_is_in_it(tmp_path, capsys) -> None:
    taken = make_snapshot()
    write(taken, form="json", path=None)
    assert parse(capsys.readouterr().out, source="s") == taken
    write(taken, form="yaml", path=tmp_path / "x.yaml")
    assert capsys.readouterr().err.endswith(
        "x.yaml: 2 nodes with 2 GPUs, 2 pods that hold some, 3 jobs of which 2 wait\n"
    )
    assert parse((tmp_path / "x.yaml").read_text(), source="s") == taken


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "snap.json"
    path.write_text(to_json(make_snapshot()))
    return path


def test_a_snapshot_is_simulated_from_where_it_stands(file, capsys) -> None:
    assert main(["simulate", "--snapshot", str(file), "--policy", "ph,spread"]) == 0
    text = capsys.readouterr().out
    assert "2 nodes with 2 GPUs, 62.5 % of them taken when it begins" in text
    assert "First 2 pods of the queue, then 0 pods drawn from the 4 pods that ran, run or wait in" in text
    assert "up to 130 % arrived" in text


def test_recorded_pods_may_arrive_on_a_snapshot(file, tmp_path, capsys) -> None:
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "arrivals.txt").write_text("small\nsmall\nhalf\n")
    given = [
        "--snapshot",
        str(file),
        "--pods",
        str(tmp_path / "pods.csv"),
        "--arrivals",
        str(tmp_path / "arrivals.txt"),
    ]
    assert main(["simulate", *given, "--policy", "fgd", "-o", "json"]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    # 62.5 % and twice 11.5 %; the last one finds 0.29 of a GPU.
    assert (run["allocation"]["110"], run["failed"]) == (85.5, 1)


def test_programs_get_the_runs_alone_and_people_what_arrived(file, capsys) -> None:
    assert main(["simulate", "--snapshot", str(file), "--policy", "fgd", "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert list(json.loads(printed.out)) == ["runs"]
    assert "First 2 pods of the queue" in printed.err


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        ([], "name --nodes or --snapshot", 2),
        (["--nodes", "n.csv"], "--nodes needs --pods", 2),
        (["--snapshot", "SNAP", "--nodes", "n.csv"], "name --nodes or --snapshot", 2),
        (["--snapshot", "SNAP", "--arrivals", "a.txt"], "--arrivals needs --pods", 2),
        (["--snapshot", "SNAP", "--node-order", "o.txt"], "--node-order goes with --nodes", 2),
        (["--snapshot", "SNAP", "--departures", "1"], "--departures needs --nodes", 2),
        (["--snapshot", "gone.json"], "gone.json: there is no such file", 3),
    ],
)
def test_what_does_not_go_together_is_told(file, capsys, arguments, sentence, code) -> None:
    given = [str(file) if word == "SNAP" else word for word in arguments]
    assert main(["simulate", *given]) == code
    told_ = capsys.readouterr().err
    assert sentence in told_
    assert told_.count("\n") == 1


def test_a_snapshot_without_gpus_or_without_jobs_is_told(tmp_path, capsys) -> None:
    path = tmp_path / "s.json"
    base = {"snapshot": 1, "takenAt": "x", "anonymous": False, "turnsPerDevice": 4, "claims": [], "jobs": []}
    for nodes, sentence in (([], "no node has a GPU that could be used"), (node_records(), "no job or pod in it asks")):
        path.write_text(json.dumps(base | {"nodes": nodes}))
        assert main(["simulate", "--snapshot", str(path)]) == 2
        assert sentence in capsys.readouterr().err


def node_records() -> list[dict[str, object]]:
    records: list[dict[str, object]] = json.loads(to_json(make_snapshot()))["nodes"]
    return records


def test_a_job_keeps_its_limit_priority_and_times() -> None:
    job = make_job("train")
    limited = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, active_deadline_seconds=3600))
    (found,) = snapshot_of(replace(make_picture(), jobs=[limited], pods=[]), now=NOW, salt="").jobs
    assert (found.limit_seconds, found.priority, found.workers, found.started_at, found.submitted_at) == (
        3600, job.spec.priority, job.spec.workers, job.status.start_time, job.metadata.creation_timestamp,
    )  # fmt: skip
