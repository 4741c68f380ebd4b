"""Each right of the chart's accounts has a sentence in SECURITY.md on what a thief does with it, and no other has."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.chart.rights import accounts_of, render, rights_in
from tests.rights.stolen import BEGIN, END, PAGE, TABLE, Can, Stolen, covers, key, table

# What replaces a right of the table by a wider one, with what it says of itself.
WIDER = {"agent.readPods=true": {("pods", "list"), ("pods", "watch")}}


@pytest.fixture(scope="module")
def charts() -> Mapping[str, str]:
    """The rendered chart by the option that it has beyond what `render` sets; the first has none."""
    helm = Path(locate.resolve(["helm"], report=Lines(sys.stderr))["helm"])
    options = {"", *(each.option for account in TABLE for each in account.can)}
    return {option: render(helm, *([option] if option else [])) for option in sorted(options)}


def test_the_page_has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0].strip() == table(), "run `python -m tests.rights.stolen`"


def sentences(account: str, *, option: str) -> list[Can]:
    """Those that hold with this option."""
    found = [each for each in TABLE if each.account == account]
    assert found, f"SECURITY.md says nothing of a stolen token of {account}"
    return [each for each in found[0].can if each.option in {"", option}]


def test_no_account_has_a_right_that_no_sentence_covers(charts: Mapping[str, str]) -> None:
    for option, chart in charts.items():
        bare = [
            f"{option or 'by default'}: {right}"
            for right in sorted(rights_in(chart))
            if not any(covers(each.rights, right) for each in sentences(right.account, option=option))
        ]
        assert not bare


def test_no_sentence_names_a_right_that_no_account_has(charts: Mapping[str, str]) -> None:
    granted = {(right.account, key(right), right.verb) for chart in charts.values() for right in rights_in(chart)}
    named = {
        (account.account, resource, verb)
        for account in TABLE
        for each in account.can
        for resource, verbs in each.rights.items()
        for verb in verbs.split()
    }
    assert named <= granted, named - granted


def test_roles_of_kubernetes_itself_are_named_too(charts: Mapping[str, str]) -> None:
    for chart in charts.values():
        own = {each["metadata"]["name"] for each in yaml.safe_load_all(chart) if each and each["kind"].endswith("Role")}
        for (role, _), accounts in accounts_of(chart).items():
            for account in accounts if role not in own else ():
                assert role in {name for each in sentences(account, option="") for name in each.roles}, (account, role)


@pytest.mark.parametrize("account", TABLE, ids=lambda each: each.account)
def test_an_account_lacks_what_the_page_says_that_it_lacks(account: Stolen, charts: Mapping[str, str]) -> None:
    held = {
        (key(right).split(":")[0], key(right), right.verb)
        for right in rights_in(charts[""])
        if right.account == account.account
    }
    for sentence in account.cannot:
        assert sentence.lacks or sentence.policies, f"{sentence.says}: what says so?"
        for resource, verbs in sentence.lacks.items():
            for verb in verbs.split():
                found = [whole for base, whole, has in held if has == verb and resource in {base, whole}]
                assert not found, f"{account.account} cannot {sentence.says}: {verb} {found}"


def test_a_policy_that_the_page_names_is_in_force_and_knows_the_account(charts: Mapping[str, str]) -> None:
    manifests = [each for each in yaml.safe_load_all(charts[""]) if each]
    policies = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "ValidatingAdmissionPolicy"}
    bound = {each["spec"]["policyName"] for each in manifests if each["kind"] == "ValidatingAdmissionPolicyBinding"}
    named = {name for account in TABLE for each in account.cannot for name in each.policies}
    assert named <= set(policies) & bound
