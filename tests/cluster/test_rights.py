"""Each right of the chart's accounts is used, and none that they need is missing: by the API server's own record.

Runs after all other tests of this folder and judges by what they made the programs ask. Removing a rule from a role
fails here: the requests that it allowed are refused then.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dovetail_sandbox.cluster import Cluster
from tests.chart.rights import Right, qualified, rights_in
from tests.cluster.conftest import COLLECTED

pytestmark = pytest.mark.cluster

# Rights that no request of these tests shows, each with the reason and with what shows it.
SHOWN_ELSEWHERE: Final = {
    ("dovetail-operator", "update", "gpujobs.dovetail.dev/finalizers"): (
        "asked by the admission plugin OwnerReferencesPermissionEnforcement, which is off by default and in the sandbox"
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
    ("dovetail-certificates", "create", "secrets"): (
        "asked where a server-side apply makes the object, recorded as patch: tests/cluster/test_certificates.py"
    ),
}
_ACCOUNT: Final = "system:serviceaccount:dovetail-system:"


def events(log: Path) -> Iterator[dict[str, Any]]:
    """The requests of the programs themselves; those that a test made with a token of theirs are not among them."""
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("}\n"):
                event: dict[str, Any] = json.loads(line)
                if event.get("userAgent", "").startswith("dovetail-") and "objectRef" in event:
                    yield event


def right_of(event: dict[str, Any]) -> Right:
    """The right that a request took."""
    about = event["objectRef"]
    sub = f"/{about['subresource']}" if about.get("subresource") else ""
    return Right(
        account=event["user"]["username"].removeprefix(_ACCOUNT),
        resource=about["resource"] + sub,
        verb=event["verb"],
        group=about.get("apiGroup", ""),
        name=about.get("name", ""),
        namespace=about.get("namespace", ""),
    )


def allows(granted: Right, used: Right) -> bool:
    """Whether a right of the chart is the one that a request took."""
    same = (granted.account, granted.resource, granted.group, granted.verb)
    return (
        same == (used.account, used.resource, used.group, used.verb)
        and granted.name in {"", used.name}
        and granted.namespace in {"", used.namespace}
    )


@pytest.fixture
def whole_folder(request: pytest.FixtureRequest) -> None:
    """Only the whole of the folder's quick tests shows every right."""
    missing = sorted(set(Path(__file__).parent.glob("test_*.py")) - request.config.stash[COLLECTED])
    if missing or request.config.option.keyword:
        pytest.skip("judges by all tests of this folder, and some of them were not chosen")


@pytest.fixture(scope="module")
def used(sandbox: Cluster) -> set[Right]:
    return {right_of(event) for event in events(sandbox.request_log)}


@pytest.mark.usefixtures("whole_folder")
def test_every_right_of_the_chart_is_used(sandbox: Cluster, used: set[Right]) -> None:
    granted = rights_in((sandbox.folder / "rendered.yaml").read_text(encoding="utf-8"))
    # kube-scheduler and extender share an account in a cluster; here each has its own.
    own = {right for right in granted if right.account != "dovetail-scheduler"}
    idle = [
        str(right)
        for right in sorted(own)
        if not any(allows(right, each) for each in used)
        and (right.account, right.verb, qualified(right.resource, group=right.group)) not in SHOWN_ELSEWHERE
    ]
    assert not idle, "rights that nothing uses: " + "; ".join(idle)


def test_the_programs_are_refused_nothing_by_rbac(sandbox: Cluster) -> None:
    refused = {
        str(right_of(event))
        for event in events(sandbox.request_log)
        if event.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
    }
    assert not refused, "requests that no rule allows: " + "; ".join(sorted(refused))


def test_the_record_is_of_all_programs(used: set[Right]) -> None:
    assert {right.account for right in used} >= {"dovetail-operator", "dovetail-extender", "dovetail-agent"}
