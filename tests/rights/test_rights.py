"""Each right of the chart's accounts is used, and none that they need is missing: by the API server's own record.

Judges by what the tests of tests/cluster made the programs ask, on every sandbox of this run. If you remove a rule from
a role, a test fails here: the API server refuses the requests that the rule allowed.
"""

import time
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final

import pytest

from tests import lanes, runs
from tests.chart.rights import Right, qualified
from tests.cluster import record, sandboxes
from tests.cluster.record import Record

CLUSTER: Final = Path(__file__).parents[1] / "cluster"
# The other worker's lane may take this much longer than all the rest of the run.
PATIENCE_SECONDS: Final = 800
pytestmark = pytest.mark.cluster

# Rights that no request of these tests shows, each with the reason and with what shows it.
SHOWN_ELSEWHERE: Final = {
    ("dovetail-operator", "update", "gpujobs.dovetail.dev/finalizers"): (
        "asked by the admission plugin OwnerReferencesPermissionEnforcement, which is off by default and in the sandbox"
    ),
    ("dovetail-operator", "get", "gpujobs.dovetail.dev"): (
        "asked after a conflict over the note of what was sent, and for a task of an array that exists already: "
        "tests/operator_/notifications/test_notifier.py"
    ),
    ("dovetail-extender", "get", "gpujobs.dovetail.dev"): (
        "asked where a pod arrives before its GPUJob, after an outage: tests/extender/bind/test_unknown_jobs.py"
    ),
    ("dovetail-agent", "create", "gpunodes.dovetail.dev"): (
        "asked where a server-side apply makes the object, recorded as patch: tests/cluster/test_stolen_agent.py"
    ),
    ("dovetail-operator", "patch", "configmaps"): (
        "what estimates have learned is written every five minutes: tests/operator_/writes/test_estimate_store.py"
    ),
    ("dovetail-operator", "delete", "historyqueries.dovetail.dev"): (
        "a question that its asker leaves is deleted after a minute: tests/operator_/history/test_history.py"
    ),
    ("dovetail-operator", "watch", "workloads.kueue.x-k8s.io"): (
        "only where Kueue is installed: tests/cluster/test_neighbours.py, in the slow suite"
    ),
    ("dovetail-operator", "watch", "trainjobs.trainer.kubeflow.org"): (
        "only where Kubeflow Trainer is installed: tests/cluster/test_trainer.py, in the slow suite"
    ),
    ("dovetail-operator", "patch", "trainjobs.trainer.kubeflow.org"): (
        "only where Kubeflow Trainer is installed: tests/cluster/test_trainer.py, in the slow suite"
    ),
    ("dovetail-operator", "watch", "podgroups.scheduling.k8s.io"): (
        "only where the API is on, on a sandbox of 1.37: tests/cluster/test_gangs.py, in the slow suite"
    ),
    ("dovetail-operator", "patch", "podgroups.scheduling.k8s.io/status"): (
        "only where the API is on, on a sandbox of 1.37: tests/cluster/test_gangs.py, in the slow suite"
    ),
    ("dovetail-operator", "watch", "podgangs.scheduler.grove.io"): (
        "only where Grove's API is: tests/cluster/test_gangs_of_roles.py, in the slow suite"
    ),
    ("dovetail-operator", "patch", "podgangs.scheduler.grove.io/status"): (
        "only where Grove's API is: tests/cluster/test_gangs_of_roles.py, in the slow suite"
    ),
    ("dovetail-operator", "watch", "leaderworkersets.leaderworkerset.x-k8s.io"): (
        "only where LeaderWorkerSet is installed: tests/cluster/test_gangs_of_roles.py, in the slow suite"
    ),
    ("dovetail-operator", "get", "poddisruptionbudgets.policy"): (
        "asked after a conflict over what a budget records: tests/operator_/writes/test_pods.py"
    ),
    ("dovetail-operator", "watch", "nodepools.karpenter.sh"): (
        "only where Karpenter is installed: tests/cluster/test_growing.py, in the slow suite"
    ),
    ("dovetail-gateway", "watch", "nodepools.karpenter.sh"): (
        "only where Karpenter is installed: the same watch as the operator's"
    ),
    ("dovetail-trust", "create", "secrets"): (
        "asked where a server-side apply makes the object, recorded as patch: tests/cluster/test_certificates.py"
    ),
    ("dovetail-certificates", "create", "secrets"): (
        "asked where a server-side apply makes the object, recorded as patch: tests/cluster/test_certificates.py"
    ),
}


def allows(granted: Right, used: Right) -> bool:
    """Whether a right of the chart is the one that a request took."""
    same = (granted.account, granted.resource, granted.group, granted.verb)
    return (
        same == (used.account, used.resource, used.group, used.verb)
        and granted.name in {"", used.name}
        and granted.namespace in {"", used.namespace}
    )


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest) -> Record:
    """What the programs asked on all sandboxes of this run, once the last of these has ended."""
    folder = runs.folder(request.config) / "records"
    if hasattr(request.config, "workerinput"):
        limit = time.monotonic() + PATIENCE_SECONDS
        while unfinished := _unfinished(request):
            assert time.monotonic() < limit, f"not finished with their sandboxes: {', '.join(sorted(unfinished))}"
            time.sleep(0.5)
    found = [record.read(path) for path in sorted(folder.glob("*.json"))]
    if not found:
        pytest.skip("no sandbox of this run has kept a record of its requests")
    return reduce(or_, found)


def _unfinished(request: pytest.FixtureRequest) -> set[str]:
    """The sandboxes that are up, and the files of tests/cluster in this run that have not finished with theirs."""
    folder = runs.folder(request.config) / "sandboxes"
    finished = {name for kind in folder.glob("*") for name in sandboxes.finished(kind)}
    up = {str(path.parent) for path in folder.glob("*/*/name")}
    return up | (sandboxes.files_with(request.session.items) - finished)


@pytest.fixture
def whole_folder(request: pytest.FixtureRequest) -> None:
    """Only the whole of the folder's quick tests shows every right."""
    chosen = {each.partition("::")[0].rpartition("/")[2] for each in request.config.stash[lanes.COLLECTED]}
    missing = sorted({path.name for path in CLUSTER.glob("test_*.py")} - chosen)
    if missing or request.config.option.keyword:
        pytest.skip("judges by all tests of tests/cluster, and some of them were not chosen")


@pytest.mark.usefixtures("whole_folder")
def test_every_right_of_the_chart_is_used(recorded: Record) -> None:
    # kube-scheduler and extender share an account in a cluster; here each has its own. The accounts of the hooks exist
    # only while Helm runs one: tests/installation does.
    elsewhere = {"dovetail-scheduler", "dovetail-cleanup", "dovetail-test"}
    own = {right for right in recorded.granted if right.account not in elsewhere}
    idle = [
        str(right)
        for right in sorted(own)
        if not any(allows(right, each) for each in recorded.used)
        and (right.account, right.verb, qualified(right.resource, group=right.group)) not in SHOWN_ELSEWHERE
    ]
    assert not idle, "rights that nothing uses: " + "; ".join(idle)


def test_the_programs_are_refused_nothing_by_rbac(recorded: Record) -> None:
    assert not recorded.refused, "requests that no rule allows: " + "; ".join(map(str, sorted(recorded.refused)))


def test_the_record_is_of_all_programs(recorded: Record) -> None:
    programs = {"dovetail-operator", "dovetail-extender", "dovetail-agent", "dovetail-gateway"}
    assert {right.account for right in recorded.used} >= programs


def test_the_gateway_itself_only_reads_whatever_its_callers_do_by_v1_v2_and_v3(recorded: Record) -> None:
    mine = {right for right in recorded.used | recorded.granted if right.account == "dovetail-gateway"}
    assert {right.verb for right in mine} == {"list", "watch"}
    assert any(right.resource == "configmaps" for right in mine & recorded.used), "v2 reads the numbers of the devices"
