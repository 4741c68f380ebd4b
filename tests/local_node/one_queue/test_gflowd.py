"""`gflowd up` as a person has it: jobs are typed into a shell, and real processes run on this machine."""

import getpass
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail import names
from dovetail.process import identity
from dovetail.sdk import Client, TaskClient
from dovetail_local_node.launch import MARK
from dovetail_sandbox import cluster
from tests import commands
from tests.local_node.machine import Machine, kubectl
from tests.polling import PATIENCE_SECONDS, until

pytestmark = pytest.mark.cluster


def write(machine: Machine, name: str, text: str) -> str:
    path = machine.work / name
    path.write_text(text)
    path.chmod(0o755)
    return name


def test_a_script_runs_where_it_was_typed_with_the_users_environment(machine: Machine) -> None:
    script = write(machine, "train.sh", '#!/bin/sh\necho "$PWD $LR $1 [$CUDA_VISIBLE_DEVICES] $DOVETAIL_JOB_ID"\n')
    job = machine.submit(script, "first", LR="0.1")
    assert machine.ended(job)["phase"] == "Succeeded"
    assert machine.log(job) == f"{machine.work} 0.1 first [] {job}\n"
    assert machine("gjob", "log", job) == machine.log(job)


def test_a_program_runs_by_its_path(machine: Machine) -> None:
    shutil.copy("/bin/echo", machine.work / "speak")
    for program in ("./speak", str(machine.work / "speak")):
        job = machine.submit(program, "a word")
        assert machine.ended(job)["phase"] == "Succeeded"
        assert machine.log(job) == "a word\n"


def test_a_job_runs_in_its_conda_environment(machine: Machine, tmp_path: Path) -> None:
    conda = tmp_path / "conda"
    conda.write_text(
        '#!/bin/sh\n[ "$1 $2 $3 $4" = "run --no-capture-output -n torch" ] || exit 9\nshift 4\nexec "$@"\n'
    )
    conda.chmod(0o755)
    job = machine.submit("--conda-env", "torch", "sh", "-c", "exit 7", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert machine.ended(job)["message"].endswith("exit code 7")
    without = machine.submit("--conda-env", "torch", "true", PATH=os.defpath)
    assert machine.ended(without)["message"].endswith("exit code 127 (StartError)")
    assert machine.log(without) == "dovetail: conda: No such file or directory\n"


def test_the_last_job_is_known_wherever_a_job_is_named(machine: Machine) -> None:
    job = machine.submit("sh", "-c", "echo hi; exit 7")
    assert machine.run("gjob", "wait", "@").returncode == 7
    assert machine("gjob", "log", "@") == "hi\n"
    assert json.loads(machine("gjob", "show", "-o", "json", "@"))["row"]["number"] == int(job)
    assert machine("gqueue", "-j", "@", "-f", "JOBID").split() == ["JOBID", job]
    assert machine("explain", "job", "@").startswith(f"Job {job} ")
    waiting = machine.submit("--begin", "now+1hour", "true")
    assert machine("gjob", "hold", "@") == f"Job {waiting} held.\n"
    assert machine("gcancel", "@,@~1").splitlines()[-1] == f"Job {waiting} cancelled."
    found = machine.run("gcancel", "@~9999")
    assert (found.returncode, found.stderr) == (3, f"dovetail: no job @~9999 of {getpass.getuser()}\n")


def test_the_tasks_of_an_array_know_its_number_and_are_not_the_last_job(machine: Machine) -> None:
    script = "echo $SLURM_ARRAY_JOB_ID $DOVETAIL_ARRAY_JOB_ID"
    array = machine.submit("--array", "1-2", "-o", "of-%A-%a.txt", "sh", "-c", script)
    assert machine.run("gjob", "wait", "@").returncode == 0
    printed = {path.name: path.read_text() for path in machine.work.glob("of-*.txt")}
    assert printed == {f"of-{array}-{index}.txt": f"{array} {array}\n" for index in (1, 2)}
    alone = machine.submit("-o", "of-%A.txt", "true", SLURM_ARRAY_JOB_ID="1", DOVETAIL_ARRAY_JOB_ID="1")
    machine.ended(alone)
    assert (machine.work / f"of-{alone}.txt").exists()


def test_the_exit_code_is_the_jobs(machine: Machine) -> None:
    job = machine.submit("sh", "-c", "exit 3")
    shown = machine.ended(job)
    assert shown["phase"] == "Failed"
    assert shown["message"] == "Worker 0 failed on local: exit code 3"


def test_a_command_that_does_not_exist_fails_with_a_sentence_in_its_log(machine: Machine) -> None:
    job = machine.submit("no-such-command")
    assert "exit code 127" in machine.ended(job)["message"]
    assert machine("gjob", "log", job) == "dovetail: no-such-command: No such file or directory\n"


def test_the_environment_is_not_in_the_api(machine: Machine) -> None:
    job = machine.submit("true", TOKEN="canary-7f3a")
    machine.ended(job)
    asked = ["get", "gpujobs,jobs,pods,events,configmaps,secrets", "--all-namespaces", "-o", "json"]
    everything = subprocess.run([*kubectl(), *asked], capture_output=True, text=True, check=True).stdout
    assert job in everything
    assert "canary-7f3a" not in everything


def test_an_interactive_job_has_these_pipes_and_gives_its_exit_code(machine: Machine) -> None:
    script = "cat; echo $DOVETAIL_JOB_ID; exit 7"
    done = subprocess.run(
        [sys.executable, "-m", "dovetail_cli", "gbatch", "--interactive", "sh", "-c", script],
        input="typed\n", capture_output=True, text=True, check=False, timeout=120, cwd=machine.work,
        env=dict(machine.environment),
    )  # fmt: skip
    number = done.stdout.split()[3]
    assert (done.returncode, done.stdout) == (7, f"Submitted batch job {number}\ntyped\n{number}\n")
    assert machine.ended(number)["phase"] == "Failed"


def test_export_none_keeps_the_users_variables_out(machine: Machine) -> None:
    job = machine.submit("--export=NONE", "sh", "-c", 'echo "[$LR] $HOME"', LR="0.1")
    machine.ended(job)
    assert machine.log(job) == f"[] {Path.home()}\n"


def test_a_job_whose_gpus_this_machine_does_not_have_waits_and_says_why(machine: Machine) -> None:
    job = machine.submit("--gpus", "64", "--wait-for-capacity", "sleep", "600")
    until(lambda: bool(machine.show(job)["reason"]), what=lambda: str(machine.show(job)))
    shown = machine.show(job)
    assert shown["phase"] == "Queued"
    assert re.match(r"Need 64 GPUs, only \d+ ", shown["message"])
    machine("gcancel", job)


def test_output_and_errors_go_to_the_files_that_are_named(machine: Machine) -> None:
    job = machine.submit("-o", "out/%j.txt", "-e", "%x-err.txt", "-n", "files", "sh", "-c", "echo out; echo err >&2")
    machine.ended(job)
    assert (machine.work / "out" / f"{job}.txt").read_text() == "out\n"
    assert (machine.work / "files-err.txt").read_text() == "err\n"
    assert machine("gjob", "log", job) == "out\n"


def test_a_log_is_followed_while_the_job_runs(machine: Machine) -> None:
    job = machine.submit("sh", "-c", "echo first; while [ ! -e go ]; do sleep 0.05; done; echo second")
    machine.printed(job, "first")
    with subprocess.Popen(
        [*commands.dovetail(), "gjob", "log", "-f", job],
        stdout=subprocess.PIPE, text=True, cwd=machine.work, env=dict(machine.environment),
    ) as following:  # fmt: skip
        assert following.stdout is not None
        assert following.stdout.readline() == "first\n"
        (machine.work / "go").touch()
        assert following.stdout.read() == "second\n"
        assert following.wait(PATIENCE_SECONDS) == 0


def test_a_log_is_followed_from_the_queue_on_over_a_retry_to_the_end(machine: Machine) -> None:
    script = "echo begin; [ -e tried ] && exit 0; touch tried; exit 1"
    job = machine.submit("--max-retries", "1", "--begin", "now+1h", "sh", "-c", script)
    with subprocess.Popen(
        [*commands.dovetail(), "gjob", "log", "-f", job],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=machine.work, env=dict(machine.environment),
    ) as following:  # fmt: skip
        assert following.stderr is not None
        first = following.stderr.readline()
        machine("gjob", "update", "--begin", "none", job)
        out, said = following.communicate(timeout=PATIENCE_SECONDS)
    assert first.startswith(f"dovetail: job {job} waits: ")
    assert (out, following.returncode) == ("begin\nbegin\n", 0)
    assert "dovetail: worker 0 starts again" in said.splitlines()
    assert said.splitlines()[-1] == f"dovetail: job {job} has ended: Succeeded"


def test_kubectl_logs_shows_and_follows_the_output(machine: Machine) -> None:
    job = machine.submit(
        "sh", "-c", "echo first; echo second; while [ ! -e kubectl-go ]; do sleep 0.05; done; echo last"
    )
    machine.printed(job, "second")
    logs = [*kubectl(), "logs", f"--selector={names.LABEL_JOB_NUMBER}={job}"]
    assert subprocess.run([*logs, "--tail=1"], capture_output=True, text=True, check=True).stdout == "second\n"
    with subprocess.Popen([*logs, "--tail=-1", "--follow"], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert [following.stdout.readline() for _ in range(2)] == ["first\n", "second\n"]
        (machine.work / "kubectl-go").touch()
        assert following.stdout.read() == "last\n"
        assert following.wait(PATIENCE_SECONDS) == 0


def test_a_log_of_an_earlier_queue_stays_and_is_not_shown_as_the_jobs_own(machine: Machine) -> None:
    upcoming = int(machine.submit("true")) + 1
    log = Path(machine.environment["XDG_DATA_HOME"], "gflow", "logs", f"{upcoming}.log")
    log.write_text("earlier\n")
    log.chmod(0o600)
    job = machine.submit("echo", "own")
    machine.ended(job)
    assert (job, machine.log(job)) == (str(upcoming), "earlier\nown\n")
    assert machine("gjob", "log", job) == "own\n"


def test_kubectl_logs_names_a_pod_that_runs_nothing(machine: Machine) -> None:
    refused = subprocess.run([*kubectl(), "logs", "no-such-pod"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert (
        refused.stderr == 'error: error from server (NotFound): pods "no-such-pod" not found in namespace "default"\n'
    )


def test_cancelling_sends_sigterm_and_leaves_no_process(machine: Machine) -> None:
    trap = "trap 'echo saving; exit 0' TERM; setsid sleep 600 & echo ready; while :; do sleep 0.05; done"
    job = machine.submit("sh", "-c", trap)
    machine.printed(job, "ready")
    uid = machine.pod_uid(job)
    assert machine("gcancel", job) == f"Job {job} cancelled.\n"
    assert machine.ended(job)["phase"] == "Cancelled"
    machine.printed(job, "saving")
    until(lambda: identity.marked(MARK, value=uid) == [])


def test_a_time_limit_ends_the_processes(machine: Machine) -> None:
    job = machine.submit("-t", "00:00:02", "sh", "-c", "echo ready; exec sleep 600")
    machine.printed(job, "ready")
    uid = machine.pod_uid(job)
    assert machine.ended(job)["phase"] == "TimedOut"
    until(lambda: identity.marked(MARK, value=uid) == [])


def test_a_killed_local_node_loses_no_job_and_runs_none_twice(machine: Machine) -> None:
    lines = "echo begins; while [ ! -e adopted ]; do sleep 0.05; done; echo ends; exit 5"
    running = machine.submit("sh", "-c", lines)
    short = machine.submit("sh", "-c", "echo begins; while [ ! -e killed ]; do sleep 0.02; done; exit 6")
    machine.printed(running, "begins")
    machine.printed(short, "begins")
    sandbox = cluster.get()
    before = sandbox.pid("local-node")
    os.kill(before, signal.SIGKILL)
    (machine.work / "killed").touch()
    until(lambda: sandbox.observed()["local-node"].process is not None and sandbox.pid("local-node") != before)
    assert machine.ended(short)["message"].endswith("exit code 6")
    (machine.work / "adopted").touch()
    assert machine.ended(running)["message"].endswith("exit code 5")
    assert machine.log(running) == "begins\nends\n"
    assert machine.log(short) == "begins\n"


# The programs that share a process on one's own machine, where no vendor's library is installed.
SHARED = ("operator", "extender", "gateway", "webhook", "certificates", "volume-dovetail-webhook", "agent")


def test_a_job_runs_on_while_each_program_of_the_queue_is_started_again(machine: Machine) -> None:
    running = machine.submit("sh", "-c", "echo begins; while [ ! -e restarted ]; do sleep 0.05; done; exit 4")
    machine.printed(running, "begins")
    sandbox = cluster.get()
    shared = sandbox.pid("operator")
    for name in SHARED:
        sandbox.restart(name)
        assert sandbox.pid(name) == shared
    assert sandbox.pid("local-node") != shared
    assert machine.ended(machine.submit("true"))["phase"] == "Succeeded"
    (machine.work / "restarted").touch()
    assert machine.ended(running)["message"].endswith("exit code 4")


def test_a_job_runs_on_while_the_process_of_the_queue_is_killed(machine: Machine) -> None:
    running = machine.submit("sh", "-c", "echo begins; while [ ! -e revived ]; do sleep 0.05; done; exit 5")
    machine.printed(running, "begins")
    sandbox = cluster.get()
    killed = sandbox.pid("webhook")
    os.kill(killed, signal.SIGKILL)
    for name in SHARED:
        until(lambda name=name: (found := sandbox.observed()[name]).process is None or found.process.pid != killed)
    sandbox.wait_ready(SHARED)
    assert {sandbox.pid(name) for name in SHARED} == {sandbox.pid("operator")}
    assert machine.ended(machine.submit("true"))["phase"] == "Succeeded"
    (machine.work / "revived").touch()
    assert machine.ended(running)["message"].endswith("exit code 5")


def test_an_array_runs_each_index_once(machine: Machine) -> None:
    machine.submit("--array", "0-3", "-n", "grid", "sh", "-c", 'echo "$GFLOW_ARRAY_TASK_ID" >> indexes')
    indexes = machine.work / "indexes"
    until(lambda: indexes.exists() and len(indexes.read_text().split()) == 4)
    assert sorted(indexes.read_text().split()) == ["0", "1", "2", "3"]


def test_a_dependent_job_starts_after_the_first_has_ended(machine: Machine) -> None:
    first = machine.submit("sh", "-c", "sleep 0.5; echo made > made")
    second = machine.submit("--depends-on", first, "cat", "made")
    assert machine.ended(second)["phase"] == "Succeeded"
    assert machine.log(second) == "made\n"


def test_a_job_has_the_name_that_its_user_gave_it(machine: Machine) -> None:
    job = machine.submit("-n", "lr0.001_bs32", "-o", "%x.out", "echo", "hello")
    shown = machine.ended("lr0.001_bs32")
    assert (shown["number"], shown["displayName"]) == (int(job), "lr0.001_bs32")
    assert shown["name"].startswith("lr0-001-bs32-")
    assert re.search(rf"^{job} +lr0.001_bs32 +CD ", machine("gqueue", "-a"), re.MULTILINE)
    assert (machine.work / "lr0.001_bs32.out").read_text() == "hello\n"
    again = machine.submit("-n", "lr0.001_bs32", "true")
    refused = machine.run("gjob", "show", "lr0.001_bs32")
    assert refused.returncode == 2
    assert refused.stderr == f'dovetail: "lr0.001_bs32" is the name of jobs {job}, {again}: use a number\n'


def test_a_file_that_goes_along_is_the_one_of_the_submission(machine: Machine) -> None:
    (machine.work / "lr.yaml").write_text("lr: 0.1\n")
    job = machine.submit("--config", "lr.yaml", "sh", "-c", 'sleep 1; cat "$DOVETAIL_CONFIG"')
    (machine.work / "lr.yaml").write_text("lr: 0.2\n")
    machine.ended(job)
    assert machine.log(job) == "lr: 0.1\n"


def test_simulated_nodes_need_the_local_ones_gone_first(machine: Machine) -> None:
    refused = machine.run("gflowd", "up", "--simulated")
    assert refused.returncode == 1
    assert "Sandbox 'default' has the queue of this machine. For simulated nodes, use another name" in refused.stderr


def test_lines_of_slurm_in_a_script_choose_its_files(machine: Machine) -> None:
    script = write(machine, "slurm.sh", "#!/bin/sh\n#SBATCH -J Slurm.Job -o slurm-%j.out\n#SBATCH --export=NONE\nenv\n")
    job = machine.submit(script, CANARY="seen")
    machine.ended(job)
    printed = (machine.work / f"slurm-{job}.out").read_text()
    assert "DOVETAIL_JOB_ID=" in printed
    assert "CANARY" not in printed


EATS = "x = []\nwhile True: x.append(bytearray(10_000_000))"


def test_a_job_that_exceeds_its_memory_is_ended_and_says_so(machine: Machine) -> None:
    limits = cluster.get().status().limits
    if " enforced, in " not in limits:
        pytest.skip(limits)
    job = machine.submit("--memory", "100M", sys.executable, "-c", EATS)
    assert machine.ended(job)["message"].endswith("exit code 137 (OOMKilled)")
    within = machine.submit("--memory", "100M", "--cpus", "0.5", "echo", "fits")
    assert machine.ended(within)["phase"] == "Succeeded"
    parents = [Path(path.rstrip(".")) for path in re.findall(r"/\S+", limits)]
    until(lambda: not any(group.is_dir() for parent in parents for group in parent.iterdir()))
    assert parents


def test_the_status_says_whether_limits_are_enforced(machine: Machine) -> None:
    shown = json.loads(machine("sandbox", "status", "-o", "json"))["limits"]
    assert re.match(r"Limits of CPU and memory are (enforced, in |not enforced: )", shown)
    read = [*kubectl(), "get", "node", "local", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].message}"]
    assert subprocess.run(read, capture_output=True, text=True, check=True).stdout.endswith(shown)
    assert shown in machine("gflowd", "status").replace("\n", "")


@pytest.fixture
def scripts(machine: Machine, tmp_path: Path) -> Machine:
    """The examples' folder as working directory: scripts find the commands on PATH, as users have them."""
    bin_folder = Path(sys.executable).parent
    path = f"{bin_folder}:{os.environ['PATH']}"
    return Machine(work=tmp_path, environment={**machine.environment, "PATH": path})


def play(machine: Machine, name: str) -> str:
    """Run one of the published scripts as a user does."""
    script = Path(__file__).parents[3] / "examples" / "scripts" / name
    done = subprocess.run(
        [script], capture_output=True, text=True, check=False, cwd=machine.work, env=dict(machine.environment)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_pipeline_runs_its_steps_one_after_the_other(scripts: Machine) -> None:
    printed = play(scripts, "pipeline.sh")
    found = re.fullmatch(r"Submitted (\d+) -> (\d+) -> (\d+)\n", printed)
    assert found, printed
    assert scripts.ended(found[3])["phase"] == "Succeeded"
    assert (scripts.work / "report.txt").read_text() == "words: 3\n"


def test_the_grid_search_runs_each_pair_under_its_own_name(scripts: Machine) -> None:
    printed = play(scripts, "grid-search.sh")
    numbers = re.findall(r"^Submitted batch job (\d+)$", printed, re.MULTILINE)
    assert len(numbers) == 4
    assert scripts.ended(numbers[0])["displayName"] == "lr0.001_bs32"
    for number in numbers:
        assert scripts.ended(number)["phase"] == "Succeeded"
    assert (scripts.work / "result-0.01-64.txt").read_text() == "lr=0.01 bs=64\n"


def test_an_array_takes_its_options_from_the_script(scripts: Machine) -> None:
    script = Path(__file__).parents[3] / "examples" / "scripts" / "array.sh"
    job = scripts.submit(str(script))
    assert scripts.ended(job)["phase"] == "Succeeded"
    assert sorted(path.read_text() for path in scripts.work.glob("fold-*.txt")) == [f"fold {n}\n" for n in range(4)]


def test_the_last_job_can_be_named_by_an_at_sign(scripts: Machine) -> None:
    printed = play(scripts, "last-job.sh")
    last = re.findall(r"\d+", printed)[-1]
    assert scripts.ended(last)["phase"] == "Succeeded"
    assert (scripts.work / "order.txt").read_text() == "first\nsecond\nthird\n"


def test_a_pod_of_no_gpujob_is_refused(machine: Machine) -> None:
    base = kubectl()
    overrides = json.dumps({"spec": {"nodeName": "local"}})
    make = ["run", "stray", "--image=x", "--restart=Never", f"--overrides={overrides}", "--", "touch", "/tmp/stray"]
    subprocess.run([*base, *make], check=True, capture_output=True)
    read = [*base, "get", "pod", "stray", "-o", "jsonpath={.status.phase} {.status.reason}"]
    until(lambda: subprocess.run(read, capture_output=True, text=True, check=True).stdout == "Failed NotAJob")
    subprocess.run([*base, "delete", "pod", "stray"], check=True, capture_output=True)


@pytest.fixture
def rest(scripts: Machine) -> Machine:
    """A shell in which scripts find the gateway and a token."""
    shown = json.loads(scripts("sandbox", "status", "-o", "json"))
    token = scripts("sandbox", "token").strip()
    return Machine(
        work=scripts.work,
        environment={**scripts.environment, "DOVETAIL_GATEWAY": shown["gateway"], "DOVETAIL_TOKEN": token},
    )


def test_a_job_of_the_sdk_runs_and_its_log_comes_back(rest: Machine) -> None:
    with Client(rest.environment["DOVETAIL_GATEWAY"], token=rest.environment["DOVETAIL_TOKEN"]) as client:
        job = client.submit(["sh", "-c", "echo $LR; echo last"], image="busybox", gpu=0, environment={"LR": "0.1"})
        assert job.wait(timeout_seconds=PATIENCE_SECONDS, progress=False) == "Succeeded"
        assert list(job.logs()) == ["0.1", "last"]
        failing = client.submit(["sh", "-c", "sleep 0.2; exit 3"], image="busybox", gpu=0)
        assert failing.wait(timeout_seconds=PATIENCE_SECONDS, progress=False) == "Failed"
        assert failing.row.message.endswith("exit code 3")


def test_a_job_with_the_token_of_another_user_does_not_run_as_this_one(rest: Machine) -> None:
    token = rest("sandbox", "token", "--namespace", "default").strip()
    with Client(rest.environment["DOVETAIL_GATEWAY"], token=token) as client:
        job = client.submit(["true"], gpu=0)
        assert job.wait(timeout_seconds=PATIENCE_SECONDS, progress=False) == "Failed"
    other = "system:serviceaccount:default:sandbox-user"
    assert re.search(f"runs jobs of .* only; {other} submitted this one", job.row.message)


def test_a_task_of_v2_runs_on_the_cpu_with_its_fields(rest: Machine) -> None:
    paths = {"train_path": "/data/t", "val_path": "/data/v", "save_path": "/out"}
    url, token = rest.environment["DOVETAIL_GATEWAY"], rest.environment["DOVETAIL_TOKEN"]
    (rest.work / "task.sh").write_text('echo "$@"; env | grep ^TASK_\n')
    rest("gflowd", "up", "--train", "sh task.sh")
    with TaskClient(url, token) as client, Client(url, token=token) as jobs:
        started = client.start_training(model="resnet50", num_classes=10, device="cpu", lr=0.1, **paths)
        assert client.wait(started.task_id, timeout_seconds=PATIENCE_SECONDS).status == "completed"
        printed = list(jobs.job(started.task_id, namespace="default").logs())
    assert "--lr 0.1" in printed[0]
    assert "TASK_MODEL=resnet50" in printed


def test_v1_by_curl_says_why_there_is_no_allocation(rest: Machine) -> None:
    script = Path(__file__).parents[3] / "examples" / "scripts" / "v1-allocation.sh"
    done = subprocess.run(
        [script], capture_output=True, text=True, check=False, cwd=rest.work, env=dict(rest.environment)
    )
    if "V100" not in done.stdout.splitlines()[0]:
        assert done.returncode != 0
        assert '"valid":false' in done.stdout
