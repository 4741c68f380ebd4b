"""Slurm's command lines in the words of our commands."""

import re

import pytest

from dovetail_cli.slurm import translation
from dovetail_cli.ui.errors import UsageError


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("train.sh --lr 0.1", "train.sh --lr 0.1"),
        ("-J train --gres=gpu:a100:2 -t 1-12 train.sh", "--name train --time 1-12 --gpus 2(A100) train.sh"),
        ("-n 4 -c 2 -N2 --mem=16G train.sh", "--nodes 2 --cpus 4 --memory 16384M train.sh"),
        ("-d afterok:7:8 -p a100 -- train.sh -x", "--pool a100 --depends-on-all 7,8 train.sh -x"),
        ("--wrap hostname", "hostname"),
        ("--test-only --env LR=0.1 --namespace=vision -", "--dry-run --env LR=0.1 --namespace vision -"),
        ("--gres=gpu:1 --cpu-fallback train.sh --x", "--gpus 1 --cpu-fallback train.sh --x"),
        ("--wait-for-capacity --cpu-fallback=2 train.sh", "--wait-for-capacity --cpu-fallback=2 train.sh"),
        ("", "-"),
    ],
)
def test_sbatch_takes_the_options_of_sbatch_lines(words: str, ours: str) -> None:
    meant = " ".join(translation.sbatch(words.split()).words)
    assert re.sub(r"--env SLURM_\S+ ", "", meant) == ours


def test_sbatch_sets_the_variables_of_its_options() -> None:
    meant = translation.sbatch(["-c", "2", "-p", "a100", "train.sh", "--env", "SLURM_X=1"]).words
    assert {word.partition("=")[0]: word.partition("=")[2] for word in meant[:-3] if word.startswith("SLURM_")} == {
        "SLURM_JOB_ID": "$(DOVETAIL_JOB_ID)",
        "SLURM_JOBID": "$(DOVETAIL_JOB_ID)",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_JOB_PARTITION": "a100",
    }


@pytest.mark.parametrize(
    ("words", "tasks"),
    [("--ntasks-per-node=4", "4"), ("-N 2 --ntasks-per-node=4", "8"), ("-n 3 -N 2", "3"), ("-N 2", "")],
)
def test_the_number_of_tasks_is_that_of_all_nodes(words: str, tasks: str) -> None:
    meant = translation.sbatch([*words.split(), "train.sh"]).words
    assert f"SLURM_NTASKS={tasks}" in meant if tasks else not any(word.startswith("SLURM_NTASKS=") for word in meant)


def test_options_without_a_counterpart_are_named_with_their_values_left_out() -> None:
    asked = translation.sbatch(["--exclusive", "-C", "avx", "--nodelist=n1", "--parsable", "train.sh"])
    assert asked.words[-1] == "train.sh"
    assert asked.without == ("--exclusive", "-C", "--nodelist")
    assert asked.parsable


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--foo", "x"], "sbatch --foo: no such option"),
        (["-t"], "sbatch -t: a value is missing"),
        (["--gres=foo", "x"], 'sbatch --gres "foo": write a number of GPUs'),
        (["--wrap=true", "x"], 'sbatch --wrap "true": it is the whole script: leave "x" out'),
    ],
)
def test_a_command_line_that_sbatch_would_refuse_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        translation.sbatch(words)
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        ("", ""),
        ("-u ada -t PD,R --name=a,b -A vision", "-u ada -s PD,R -N a,b -P vision"),
        ("-j 7,8 -t all -i 5", "-j 7,8 -a -w --interval 5"),
        ("-o %.18i%.9j|%T|%R", "-f JOBID,NAME,SLURM_STATE,NODELIST(REASON)"),
        ("-O jobid:10,state,starttime", "-f JOBID,SLURM_STATE,ETA"),
        ("-l", "-f JOBID,NAME,USER,SLURM_STATE,TIME,TIMELIMIT,NODES,NODELIST(REASON)"),
        (
            "--start --json --kubeconfig k",
            "-s PD -f JOBID,NAME,USER,ST,ETA,NODES,NODELIST(REASON) -o json --kubeconfig k",
        ),
    ],
)
def test_squeue_has_slurms_options(words: str, ours: str) -> None:
    assert " ".join(translation.squeue(words.split()).words) == ours


def test_squeue_without_a_header_and_without_counterparts() -> None:
    asked = translation.squeue(["-h", "-p", "a100", "-r"])
    assert (asked.words, asked.without, asked.header) == ((), ("-p",), False)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-o", "%i %Z"], 'squeue -o "%i %Z": %Z is unknown; allowed are %i JOBID'),
        (["-o", "id"], 'squeue -o "id": no field; allowed are %i JOBID'),
        (["-O", "jobid,wckey"], 'squeue -O "wckey": unknown field, allowed are jobid'),
        (["--me"], "squeue --me: name the user"),
        (["-t", "FOO"], 'squeue -t "FOO": unknown state, allowed are QUEUED PD'),
        (["7"], 'squeue "7": write options, such as squeue -j 7'),
        (["-Z"], "squeue: option -Z not recognized (see `squeue --help`)"),
    ],
)
def test_what_squeue_cannot_show_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        translation.squeue(words)
    assert str(refused.value).startswith(problem)


def test_scancel_and_sinfo_have_slurms_options() -> None:
    assert translation.scancel(["-Q", "7", "8", "--name=train", "--context", "c"]).words == (
        "--context", "c", "7", "8", "train"
    )  # fmt: skip
    assert translation.sinfo(["-N", "-l", "--json"]).words == ("-o", "json")
    assert translation.sinfo(["-p", "a100"]).without == ("-p",)
    with pytest.raises(UsageError, match="scancel -u: jobs are cancelled by number or name"):
        translation.scancel(["-u", "ada"])
    with pytest.raises(UsageError, match="scancel: name the jobs"):
        translation.scancel([])
    with pytest.raises(UsageError, match="it takes options only"):
        translation.sinfo(["n1"])


@pytest.mark.parametrize("word", ["all", "ALL", "All"])
def test_all_states_are_all_jobs_in_any_case(word: str) -> None:
    assert translation.squeue(["-t", word]).words == ("-a",)
    assert translation.squeue([f"--states={word}"]).words == ("-a",)
