"""`dovetail simulate`: files in, table, JSON and picture out, and one sentence about anything that cannot be."""

import gzip
import json
from pathlib import Path

import pytest

from dovetail_cli.app import main
from tests.core.simulator.builders import NODES, PODS

ARRIVALS = "one\nhalf\nhost\npair\n" * 12


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "arrivals.txt.gz").write_bytes(gzip.compress(ARRIVALS.encode()))
    (tmp_path / "order.txt").write_text("f\ne\nd\nc\nb\na\n")
    return {path.name.partition(".")[0]: path for path in tmp_path.iterdir()}


def simulate(files: dict[str, Path], *arguments: str, policy: str = "fgd", arrivals: bool = True) -> int:
    given = ["--nodes", str(files["nodes"]), "--pods", str(files["pods"]), "--policy", policy]
    given += ["--arrivals", str(files["arrivals"]), "--node-order", str(files["order"])] if arrivals else []
    return main(["simulate", *given, *arguments])


def test_json_is_what_programs_read(files, capsys):
    assert simulate(files, "-o", "json", policy="ph,fgd") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["policy"] for run in runs] == ["ph", "fgd"]
    keys = ["policy", "allocation", "fragmentation", "failed", "failed_by_class", "placements_per_second"]
    assert list(runs[0]) == keys
    assert list(runs[0]["allocation"]) == list(runs[0]["fragmentation"]) == ["90", "95", "100", "110", "130"]
    assert runs[0]["allocation"]["90"] > 80


def test_a_table_has_a_line_for_each_policy(files, capsys):
    assert simulate(files, policy="bestfit,gpupacking") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["POLICY", "90", "95"]
    assert [line.split()[0] for line in lines[1:3]] == ["bestfit", "gpupacking"]


def test_without_arrivals_they_are_drawn_with_the_seed(files, capsys):
    outputs = []
    for seed in ("1", "1", "2"):
        assert simulate(files, "--seed", seed, "-o", "json", arrivals=False) == 0
        run = json.loads(capsys.readouterr().out)["runs"][0]
        outputs.append((run["allocation"], run["failed"]))
    assert outputs[0] == outputs[1] != outputs[2]


def test_pods_that_leave_have_an_average(files, capsys):
    assert simulate(files, "--departures", "1.0", "-o", "json", arrivals=False) == 0
    assert list(json.loads(capsys.readouterr().out)["runs"][0]["allocation"]) == ["average"]


def test_a_picture_is_drawn(files, tmp_path):
    pytest.importorskip("matplotlib")
    assert simulate(files, "--plot", str(tmp_path / "out.png"), "--tied", "30") == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_told_after_the_table(files, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "out.png").mkdir()
    assert simulate(files, "--plot", str(tmp_path / "out.png")) == 1
    told = capsys.readouterr()
    assert "Allocation in percent of the GPUs" in told.out
    assert 'out.png": cannot be written: Is a directory' in told.err


@pytest.mark.parametrize(
    ("arguments", "sentence", "code"),
    [
        (["--policy", "best"], '--policy "best": no such policy, allowed are ph', 2),
        (["--policy", "fgd,fgd"], '--policy "fgd,fgd": fgd is named twice', 2),
        (["--plot", "out.gif"], '--plot "out.gif": unknown kind of picture, allowed are .png, .svg, .pdf', 2),
        (["--plot", "nowhere/out.png"], "there is no folder nowhere", 3),
        (["--departures", "0"], "--departures 0: expected a load above 0, up to 10", 2),
        (["--departures", "nan"], "--departures nan: expected a load above 0", 2),
        (["--tied", "101"], "--tied 101: expected a percentage, 0 to 100", 2),
        (["--seed", "-1"], "--seed -1: expected 0 or more", 2),
        (["--processes", "0"], "--processes 0: expected 1 or more", 2),
        (["-o", "xml"], '-o "xml": unknown format', 2),
        (["--nodes", "gone.csv"], "gone.csv: there is no such file", 3),
    ],
)
def test_a_value_that_cannot_be_is_told_in_one_sentence(files, capsys, arguments, sentence, code):
    assert simulate(files, *arguments) == code
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "nodes",
            b"sn,cpu_milli,memory_mib,gpu,model\n" + b"".join(b"%c,1,1,0,T4\n" % at for at in b"abcdef"),
            'column "gpu": every node has 0',
        ),
        ("nodes", b"sn,cpu_milli,memory_mib,gpu,model\na,1,1,x,T4\n", 'line 2, column "gpu": "x": expected a whole'),
        ("pods", b"\xff\xfe", "expected text in UTF-8"),
        ("arrivals", b"one\n", "expected a file packed by gzip"),
        ("arrivals", gzip.compress(ARRIVALS.encode(), mtime=0)[:20], "expected a file packed by gzip"),
        ("arrivals", gzip.compress(b"", mtime=0)[:10] + b"\xff" * 20, "expected a file packed by gzip"),
        ("order", b"a\n", "expected the node b, too"),
    ],
)
def test_a_file_that_cannot_be_is_told_in_one_sentence(files, capsys, name, content, sentence):
    files[name].write_bytes(content)
    assert simulate(files) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert str(files[name]) in told


def test_pods_that_ask_for_no_device_cannot_be_drawn(files, capsys):
    files["pods"].write_text("\n".join([PODS.splitlines()[0], "host,1,1,0,0,"]))
    assert simulate(files, arrivals=False) == 2
    assert 'column "num_gpu": every pod has 0' in capsys.readouterr().err


def test_jobs_are_played_through_the_queue_under_its_terms(files, capsys):
    assert simulate(files, "--jobs", policy="ph,bestfit") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["ph", "bestfit"]
    assert "GPUJobs, planned by the queue; jobs that do not fit are passed over" in out


def test_a_policy_that_the_queue_does_not_have_is_refused_for_jobs(files, capsys):
    assert simulate(files, "--jobs", policy="ph,gpupacking") == 2
    assert "no such term of the queue, allowed are ph, fgd, bestfit" in capsys.readouterr().err


def test_without_a_policy_the_usual_ones_are_compared(files, capsys):
    for arguments, names in (((), ["ph", "fgd", "bestfit", "gpupacking"]), (("--jobs",), ["ph", "fgd", "bestfit"])):
        assert simulate(files, *arguments, policy="") == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1 : len(names) + 1]] == names
