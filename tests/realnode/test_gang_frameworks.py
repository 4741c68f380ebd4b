"""The examples' gangs as people apply them, on a real node: PyTorch over gloo, MPI over SSH, TensorFlow's names.

Only the image is another one, and the pods are told to come to the real node. It is given four cards for the time of
these tests, which is what the examples ask for.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.gpujob import FINISHED
from dovetail_sandbox import realnode
from dovetail_sandbox.realnode.commands import call
from dovetail_sandbox.realnode.objects import SIMULATED_DEVICES, TAINT_KEY
from tests.realnode.conftest import RealSandbox

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.realnode]

ROOT = Path(__file__).parents[2]
IMAGE = "dovetail.local/frameworks:dev"
CARDS = 4
DEADLINE_SECONDS = 240
PYTORCH_SUM = r"rank \d of 4: the sum is \d+"

# What TensorFlow does with TF_CONFIG, without TensorFlow: each worker serves at its own name and calls all others.
CALL_EACH_OTHER = """
import json, os, socket, threading, time
config = json.loads(os.environ["TF_CONFIG"])
workers, own = config["cluster"]["worker"], config["task"]
assert own["type"] == "worker"
host, port = workers[own["index"]].split(":")
assert socket.gethostname() == host.split(".")[0]
server = socket.create_server(("", int(port)))

def answer():
    for _ in workers:
        server.accept()[0].sendall(host.encode())

serving = threading.Thread(target=answer)
serving.start()

def call(worker):
    there, port = worker.split(":")
    while True:
        try:
            with socket.create_connection((there, int(port)), timeout=5) as line:
                return line.recv(100).decode()
        except OSError:
            time.sleep(0.5)

met = [call(worker) for worker in workers]
serving.join()
print("worker", own["index"], "met", *met)
"""

# The second worker ends with 1 the first time, when the first one waits for it.
FAIL_ONCE = 'if [ "$RANK" = 1 ] && [ ! -e /marks/failed ]; then touch /marks/failed; sleep 3; exit 1; fi; exec "$@"'


@pytest.fixture(scope="module")
def frameworks(sandbox: RealSandbox) -> RealSandbox:
    """The sandbox whose real node has the image."""
    archive = call(ROOT / "images" / "frameworks.sh").strip()
    realnode.import_images(sandbox.folder, Path(archive), ctr=sandbox.control_plane.binaries["ctr"])
    return sandbox


@pytest.fixture(scope="module", autouse=True)
def cards(frameworks: RealSandbox) -> Iterator[None]:
    offer(frameworks, count=CARDS)
    yield
    offer(frameworks, count=int(str(SIMULATED_DEVICES["count"])))


@pytest.fixture(autouse=True)
def clean(frameworks: RealSandbox) -> Iterator[None]:
    """What a test leaves passes the audit; and the next begins with free devices."""
    yield
    try:
        frameworks.dovetail("audit")
    finally:
        frameworks.kubectl("delete", "gpujobs", "--all", "--wait=true")
        frameworks.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")


def offer(sandbox: RealSandbox, *, count: int) -> None:
    """The agent advertises that many cards of the real node."""
    declared = f"dovetail.dev/simulated-devices={json.dumps(SIMULATED_DEVICES | {'count': count})}"
    sandbox.kubectl("annotate", "node", realnode.NODE_NAME, declared, "--overwrite")
    capacity = f"--for=jsonpath={{.status.capacity.dovetail\\.dev/gpu-milli}}={_quantity(count)}"
    sandbox.kubectl("wait", f"node/{realnode.NODE_NAME}", capacity, "--timeout=60s")


def _quantity(cards: int) -> str:
    """As the API server writes so many thousand thousandths."""
    return f"{cards}k"


def example(name: str, *, command: list[str] | None = None) -> dict[str, Any]:
    """The example, with the image that has its framework, on the real node."""
    job: dict[str, Any] = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    pod |= {
        "tolerations": [{"key": TAINT_KEY, "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/hostname": realnode.NODE_NAME},
    }
    pod["containers"][0] |= {"image": IMAGE, "imagePullPolicy": "Never"}
    if command is not None:
        pod["containers"][0]["command"] = command
    return job


def complete(sandbox: RealSandbox, job: dict[str, Any]) -> dict[str, Any]:
    """The status of the job after its success."""
    name = job["metadata"]["name"]
    sandbox.kubectl("create", "-f", "-", stdin=json.dumps(job))
    status: dict[str, Any] = {}

    def over() -> bool:
        status.update(json.loads(sandbox.kubectl("get", "gpujob", name, "--output=json")).get("status", {}))
        return status.get("phase") in FINISHED

    sandbox.wait_until(over, deadline_s=DEADLINE_SECONDS)
    assert status["phase"] == "Succeeded", (status["message"], printed(sandbox, name))
    return status


def printed(sandbox: RealSandbox, name: str) -> str:
    """All that its workers printed."""
    return sandbox.kubectl("logs", f"--selector=dovetail.dev/job={name}", "--tail=-1")


def found(pattern: str, text: str) -> list[str]:
    """What ranks said in the order of the text. Two of one container may do so on one line."""
    return sorted(re.findall(pattern, text))


def test_pytorch_adds_a_tensor_up_over_gloo_between_two_containers(frameworks: RealSandbox) -> None:
    complete(frameworks, example("pytorch"))
    assert found(PYTORCH_SUM, printed(frameworks, "pytorch")) == [
        f"rank {rank} of 4: the sum is 10" for rank in range(4)
    ]


def test_a_worker_that_fails_once_starts_the_whole_gang_anew_as_one_retry(
    frameworks: RealSandbox, tmp_path: Path
) -> None:
    job = example("pytorch")
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "marks", "hostPath": {"path": str(tmp_path)}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "marks", "mountPath": "/marks"}]
    pod["containers"][0]["command"] = ["sh", "-c", FAIL_ONCE, "worker", *pod["containers"][0]["command"]]
    status = complete(frameworks, job)
    assert (status["attempt"], status["retries"]) == (2, 1)
    assert "Worker 1 failed" in status["attempts"][0]["message"]
    assert found(PYTORCH_SUM, printed(frameworks, "pytorch")) == [
        f"rank {rank} of 4: the sum is 10" for rank in range(4)
    ]


def test_mpirun_starts_a_rank_on_each_host_of_the_hostfile_and_its_end_is_the_jobs(frameworks: RealSandbox) -> None:
    job = example("mpi")
    # The pods of the last two go with the job's success: nobody waits to be called any more.
    complete(frameworks, job)
    said = found(r"rank \d of 3 on mpi-\d: the sum is \d+", printed(frameworks, "mpi"))
    assert said == [f"rank {rank} of 3 on mpi-{rank}: the sum is 6" for rank in range(3)]


def test_tensorflows_workers_reach_each_other_by_the_names_in_tf_config(frameworks: RealSandbox) -> None:
    complete(frameworks, example("tensorflow", command=["python3", "-c", CALL_EACH_OTHER]))
    met = "tensorflow-0.tensorflow tensorflow-1.tensorflow"
    assert sorted(printed(frameworks, "tensorflow").splitlines()) == [f"worker 0 met {met}", f"worker 1 met {met}"]
