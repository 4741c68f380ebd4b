"""A stream of small GPUJobs during upgrades: none may be lost or run twice, and placements must go on.

They run on the simulated nodes of the cluster, so that containers of jobs take no CPU from those of the release.
"""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from dovetail import names
from tests.installation.machine import FLEET_TAINT, Machine, Object, make_job

_LABEL = "stream"
# The jobs run between 1 s and this long: of one length, they would end in waves with gaps between them.
_LONGEST_SECONDS = 30


def submit(machine: Machine, *, count: int) -> None:
    """Create that many GPUJobs of one device of the fleet at once."""
    jobs = [_make(f"{_LABEL}-{at}", seconds=1 + at % _LONGEST_SECONDS) for at in range(count)]
    machine.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))


def _make(name: str, *, seconds: int) -> Object:
    job: Object = json.loads(make_job(name, gpu="1(V100)"))
    template = job["spec"]["template"]
    template["metadata"] = {"annotations": {names.RUN_SECONDS: str(seconds)}}
    template["spec"]["tolerations"] = [{"key": FLEET_TAINT, "operator": "Exists"}]
    return job


def until_succeeded(machine: Machine, *, count: int) -> None:
    """Wait for all of them. A list of all is megabytes, and kubectl watches one after the other."""
    jobs = [f"gpujob/{_LABEL}-{at}" for at in range(count)]
    until = "--for=jsonpath={.status.phase}=Succeeded"
    machine.kubectl("wait", until, "--namespace=default", "--timeout=280s", *jobs)


def phases(machine: Machine) -> Counter[str]:
    """How many jobs of the stream are in each phase."""
    return Counter(each.get("status", {}).get("phase", "") for each in _of_stream(machine, kind="gpujobs"))


def expect_each_once(machine: Machine, *, count: int) -> None:
    """All jobs have succeeded in their first attempt, each with one pod."""
    jobs = _of_stream(machine, kind="gpujobs")
    assert phases(machine) == {"Succeeded": count}
    assert {each["status"].get("attempt", 1) for each in jobs} == {1}, "no job ran twice"
    assert len({each["status"]["number"] for each in jobs}) == count
    assert Counter(each["metadata"]["labels"]["dovetail.dev/job"] for each in _pods(machine)) == {
        each["metadata"]["name"]: 1 for each in jobs
    }


def longest_gap_seconds(machine: Machine) -> float:
    """The longest time between two placements of the stream, while jobs were waiting for all of it."""
    placed = sorted(_placed_at(pod) for pod in _pods(machine))
    return max((later - earlier).total_seconds() for earlier, later in pairwise(placed))


def _of_stream(machine: Machine, *, kind: str) -> Sequence[Object]:
    found = json.loads(machine.kubectl("get", kind, "--namespace=default", "--output=json"))["items"]
    return [each for each in found if each["metadata"]["name"].startswith(f"{_LABEL}-")]


def _pods(machine: Machine) -> Sequence[Object]:
    return _of_stream(machine, kind="pods")


def _placed_at(pod: Object) -> datetime:
    (placed,) = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    return datetime.fromisoformat(placed["lastTransitionTime"])
