"""Options in scripts: gbatch's own and Slurm's, beside those of the command line."""

from pathlib import Path
from typing import Any

import pytest

from dovetail_cli.app import run
from dovetail_cli.submit import sbatch, submit
from dovetail_cli.submit.script_directives import words_of
from dovetail_cli.submit.scripts import Script
from dovetail_cli.ui.errors import UsageError


def words(text: str) -> Any:
    return words_of(Script(name="train.sh", text=text))


def test_lines_are_read_with_shell_quoting_up_to_the_first_command() -> None:
    found = words(
        "#!/bin/sh\n#SBATCH -t 10 # ten\n\n# GFLOW --param 'x=a b,c'\n#GFLOW -p 3\n## GFLOW -p 4\n#SBATCHED -p 5\n"
        "# a comment\necho\n#SBATCH -p late\n"
    )
    assert found == (["-t", "10"], ["--param", "x=a b,c", "-p", "3"], 1)


def test_a_quote_that_is_left_open_is_told_with_its_line() -> None:
    with pytest.raises(UsageError, match=r"train.sh, line 2: # GFLOW -n 'x: No closing quotation"):
        words("#!/bin/sh\n# GFLOW -n 'x\n")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("-J train --time=1-12", "--name train --time 1-12"),
        ("--job-name=Train_ResNet.v2", "--name Train_ResNet.v2"),
        ("-J ___", "--name ___"),
        ("-J _x_ --time=0", "--name _x_"),
        ("--time=unlimited", ""),
        ("-t 1-12:30", "--time 1-12:30"),
        ("--array=0-15:4%2 -D /work --begin=now+1hour", "--array 0-15:4%2 --begin now+1hour --workdir /work"),
        ("--gres=gpu:2", "--gpus 2"),
        ("--gres=gpu:a100:2(S:0)", "--gpus 2(A100)"),
        ("--gres=gpu", "--gpus 1"),
        ("-G 8 -N 4", "--nodes 4 --gpus 2"),
        ("--gpus-per-node=v100:4 --nodes=2-3", "--nodes 2 --gpus 4(V100)"),
        ("-N 2 --ntasks-per-node=4 --gpus-per-task=1", "--nodes 2 --gpus 4 --cpus 4"),
        ("--gpus-per-task=a100:8 -c 32", "--gpus 8(A100) --cpus 32"),
        ("--gres=gpu:2 --gpus-per-task=1", "--gpus 2"),
        ("--gpus-per-node=2 --cpus-per-gpu=4 --mem-per-gpu=8G", "--gpus 2 --cpus 8 --memory 16384M"),
        ("--cpus-per-gpu=4 --mem-per-gpu=8G", ""),
        ("-n 4 -c 2", "--cpus 8"),
        ("-n 5 -N 2 -c2", "--nodes 2 --cpus 6"),
        ("--ntasks-per-node=2 --cpus-per-task=3 --mem-per-cpu=1G", "--cpus 6 --memory 6144M"),
        ("--mem=2000", "--memory 2000M"),
        ("-p a100", "--pool a100"),
        ("-p Teaching_GPU", "--pool teaching-gpu"),
        ("-A vision", "--project vision"),
        ("--mail-user=ada@x.org --mail-type=BEGIN,end", "--notify-email ada@x.org --notify-on Started,Finished"),
        ("--mail-user=ada@x.org --mail-type=ALL", "--notify-email ada@x.org --notify-on All"),
        ("--mail-user=ada@x.org --mail-type=NONE", ""),
        ("--mail-user=ada@x.org", ""),
        ("-d afterok:7:8,afterok:9", "--depends-on-all 7,8,9"),
        ("--dependency=afterok:7?afterok:8", "--depends-on-any 7,8"),
    ],
)
def test_slurms_options_keep_their_meaning(said: str, meant: str) -> None:
    assert " ".join(sbatch.read(said.split()).words) == meant


def test_mails_that_cannot_be_sent_are_named() -> None:
    assert sbatch.read(["--mail-type=FAIL,STAGE_OUT", "--mail-user=a@x.org"]).without == ("--mail-type=STAGE_OUT",)
    assert sbatch.read(["--mail-type=FAIL", "--mail-user=ada"]).without == ("--mail-user",)
    assert sbatch.read(["--mail-type=FAIL"]).without == ("--mail-type",)


def test_options_without_a_counterpart_are_named_once_and_take_their_values_along() -> None:
    said = "-q lab -M c1 --qos=high --exclusive -M c2 --requeue -J a -H -c 2"
    found = sbatch.read(said.split())
    assert found.without == ("-q", "-M", "--qos", "--exclusive", "--requeue", "-H")
    assert found.words == ("--name", "a", "--cpus", "2")


@pytest.mark.parametrize(
    "said",
    [
        "-n x", "-c 0", "--nodes=", "--gres=fpga:1", "--gres=gpu:x:y", "-G 3 -N 2", "--mem=much", "--mem=0", "-p a,b",
        "word", "--gpus-per-task=x:y:z", "-d afterany:3", "-d afterok:1,afterok:2?afterok:3", "-t",
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_told(said: str) -> None:
    with pytest.raises(UsageError, match="#SBATCH"):
        sbatch.read(said.split())


def dry(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str) -> tuple[int, str]:
    script = tmp_path / "train.sh"
    script.write_text(text)
    code = run("gbatch", arguments=["--kubeconfig", "/nonexistent", *options, str(script)], prog="gbatch")
    return code, capsys.readouterr().err


def test_wrong_options_of_a_script_are_told_with_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = dry(tmp_path, capsys, "#SBATCH --mem=x\n")
    assert (code, said) == (2, 'dovetail: train.sh: #SBATCH --mem "x": write a number with K, M, G or T, such as 16G\n')
    code, said = dry(tmp_path, capsys, "# GFLOW --no-such 3\n")
    assert code == 2
    assert "train.sh: No such option: --no-such" in said
    code, said = dry(tmp_path, capsys, "# GFLOW gpus\n")
    assert '"gpus" in a # GFLOW line is no option' in said


def test_the_command_line_wins_over_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "#SBATCH -t 10\n# GFLOW -p 300 --array 0-3\n"
    assert "--priority 300" in dry(tmp_path, capsys, text)[1]
    # Nothing else is wrong then: there is no cluster.
    assert dry(tmp_path, capsys, text, "-p", "20", "--param", "a=1,2")[0] == 4


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--env LR", '--env "LR": write NAME=VALUE, such as --env LR=0.1'),
        ("--volume data", '--volume "data": write the name of a PersistentVolumeClaim'),
        ("--node-selector disk", '--node-selector "disk": write LABEL=VALUE'),
        ("--workload serving", '--workload "serving": allowed are Training, Inference'),
        ("-g 1 --mode own", '--mode "own": allowed are Exclusive'),
        ("-g 1 --mode Exclusive --shared", '--mode "Exclusive": --shared means TimeShared'),
        ("-N 2 --min-workers 3", "--min-workers 3: allowed are 1 to the number of workers, which is 2"),
        ("-N 2 --restart all", '--restart "all": allowed are Gang, Worker'),
        ("--group A --max-concurrent 2", '--group "A": write up to 63 of'),
        ("--max-concurrent 2", "--max-concurrent is about several tasks"),
        ("--mode Exclusive", "--mode needs --gpus"),
    ],
)
def test_lines_of_a_script_take_all_options_and_name_a_wrong_one(
    line: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = dry(tmp_path, capsys, f"# GFLOW {line}\n")
    assert code == 2
    assert problem in said


def test_a_script_with_options_that_go_together_is_submitted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "# GFLOW -g 1 --gpu-memory 32G --shared --env A=1 --env B=2 --volume d:/d --group g --max-concurrent 2\n"
    # Nothing is wrong: there is no cluster. --mode on the command line stands for --shared in the script.
    assert dry(tmp_path, capsys, text)[0] == 4
    assert dry(tmp_path, capsys, text, "--mode", "Exclusive")[0] == 4


@pytest.mark.parametrize(
    ("said", "ignored"),
    [
        ("--cpus-per-gpu=4 --mem-per-gpu=8G", ("--cpus-per-gpu", "--mem-per-gpu")),
        ("--gres=gpu:0 --mem-per-gpu=8G", ("--mem-per-gpu",)),
        ("--gres=gpu:2 --mem-per-gpu=8G", ()),
    ],
)
def test_what_is_for_each_gpu_says_where_there_is_none(said: str, ignored: tuple[str, ...]) -> None:
    found = sbatch.read(said.split())
    assert (found.of_no_gpus, found.without) == (ignored, ())


def test_what_is_not_heeded_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, said = dry(tmp_path, capsys, "#SBATCH --qos=high -M x --mem-per-gpu=8G\necho\n# GFLOW -p 3\n")
    assert "train.sh: ignored #SBATCH --qos, -M: Dovetail has no equivalent" in said
    assert "train.sh: ignored #SBATCH --mem-per-gpu: no option there requests a GPU" in said
    assert "train.sh: 1 #SBATCH or # GFLOW lines behind the first command are not read" in said


def test_a_script_for_slurm_has_slurms_variables_and_keeps_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(submit, "submit", lambda submission, **_: seen.append(submission))
    script = tmp_path / "train.sh"
    for text in ("#SBATCH -c 4 -n 2\n# GFLOW --env A=1 --env B=1\n", "# GFLOW --env A=1 --env B=1\n"):
        script.write_text(text)
        assert run("gbatch", arguments=["--env", "B=2", "--env", "SLURM_NTASKS=3", str(script)], prog="gbatch") == 0
    number = "$(DOVETAIL_JOB_ID)"
    assert [each.env for each in seen] == [
        {
            "SLURM_JOB_ID": number, "SLURM_JOBID": number, "SLURM_NTASKS": "3", "SLURM_CPUS_PER_TASK": "4",
            "A": "1", "B": "2",
        },
        {"A": "1", "B": "2", "SLURM_NTASKS": "3"},
    ]  # fmt: skip
