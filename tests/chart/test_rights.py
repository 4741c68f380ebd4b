"""The rights of the chart's accounts: documented as rendered, each with its reason, and none wider than needed."""

import sys
from pathlib import Path

import pytest
import yaml

from dovetail.api.resources import JOBS
from dovetail.jobs.guests.gangs import GANG_KINDS
from dovetail.jobs.guests.registry import KINDS
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.chart.rights import BEGIN, END, PAGE, accounts_of, render, rights_in, rules_in, table

# Verbs that reach further than reading and writing objects.
ESCALATING = {"*", "impersonate", "bind", "escalate", "approve", "sign", "deletecollection"}


@pytest.fixture(scope="module")
def chart() -> str:
    return render(Path(locate.resolve(["helm"], report=Lines(sys.stderr))["helm"]))


def test_the_page_has_the_table_of_the_chart(chart: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0].strip() == table(chart), "run `python -m tests.chart.rights`"


def test_every_rule_of_an_account_says_why(chart: str) -> None:
    bound = accounts_of(chart)
    silent = [rule for rule in rules_in(chart) if bound.get((rule.role, rule.namespace)) and not rule.why]
    assert not silent


def test_no_account_has_a_wildcard_or_a_verb_that_gives_more_rights(chart: str) -> None:
    for right in rights_in(chart):
        assert right.verb not in ESCALATING, right
        assert "*" not in (right.resource, right.group), right


def test_no_account_reads_a_secret_but_one_of_its_own_by_name(chart: str) -> None:
    for right in rights_in(chart):
        if right.resource == "secrets" and right.verb != "create":
            assert right.name, right
            assert right.namespace == "dovetail-system", right


def test_no_account_changes_pods_runs_in_them_or_makes_tokens(chart: str) -> None:
    forbidden = {"pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "serviceaccounts/token"}
    for right in rights_in(chart):
        assert right.resource not in forbidden, right
        # The clean-up deletes the pod of a failed `helm test`, which creates a GPUJob and so must be allowed to create
        # pods. The operator opens the gates of pods in the queue: dovetail-pods refuses it any other change.
        known = {("dovetail-operator", "patch"), ("dovetail-test", "create")}
        is_known = right.name == "dovetail-test" or (right.account, right.verb) in known
        assert right.resource != "pods" or right.verb in {"get", "list", "watch"} or is_known, right


def test_only_an_account_that_exists_while_helm_runs_writes_where_api_servers_read_whom_to_trust(chart: str) -> None:
    groups = {"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"}
    writers = {right.account for right in rights_in(chart) if right.group in groups and right.verb != "get"}
    assert writers == {"dovetail-trust"}
    lives = [each for each in yaml.safe_load_all(chart) if each and each["metadata"]["name"] == "dovetail-trust"]
    for manifest in lives:
        annotations = manifest["metadata"]["annotations"]
        kept = {"Job": {"before-hook-creation", "hook-succeeded"}}.get(
            manifest["kind"], {"before-hook-creation", "hook-succeeded", "hook-failed"}
        )
        assert set(annotations["helm.sh/hook-delete-policy"].split(",")) == kept, manifest["kind"]
        assert {"pre-install", "post-install", "pre-upgrade"} <= set(annotations["helm.sh/hook"].split(","))
    assert {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} <= {each["kind"] for each in lives}


def test_the_operator_may_follow_and_hold_each_kind_of_guest_and_nothing_more(chart: str) -> None:
    for kind in KINDS:
        known = {
            right.verb
            for right in rights_in(chart)
            if right.account == "dovetail-operator"
            and (right.group, right.resource) == (kind.resource.group, kind.resource.plural)
        }
        assert known >= {"list", "watch", "patch"}, kind.resource.kind
        # The batch Jobs of GPUJobs are its own.
        assert kind.resource == JOBS or known == {"list", "watch", "patch"}, kind.resource.kind


def test_the_operator_may_follow_each_kind_of_gang_and_write_no_more_than_its_status(chart: str) -> None:
    for kind in GANG_KINDS:
        plural = kind.resource.plural
        known = {
            (right.resource, right.verb)
            for right in rights_in(chart)
            if right.account == "dovetail-operator" and right.group == kind.resource.group
            if right.resource.partition("/")[0] == plural
        }
        expected = {(plural, "list"), (plural, "watch")}
        assert known == expected | ({(f"{plural}/status", "patch")} if kind.condition else set()), plural
