"""What v2's tasks run, and whom scripts without a token act as: the values of `dovetail migrate` as Helm takes them."""

import shlex
from pathlib import Path

import pytest
import yaml

from dovetail_cli.app import run
from dovetail_gateway.v2.templates import TemplateFile
from tests.chart.conftest import Helm, Render, objects_in
from tests.chart.generated import CHART
from tests.migration_page import walk


@pytest.fixture
def values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The file that the page's line for a model service writes."""
    line = walk("v2").splitlines()[0].removesuffix(" > migrate.yaml")
    program, command, *words = shlex.split(line)
    assert (program, run(command, arguments=words, prog=command)) == ("dovetail", 0)
    file = tmp_path / "migrate.yaml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    return file


def test_the_gateway_reads_what_the_page_s_line_makes(helm: Helm, values: Path, tmp_path: Path) -> None:
    done = helm("template", "dovetail", str(CHART), f"--values={values}")
    assert done.returncode == 0, done.stderr
    (config,) = (each for each in objects_in(done.stdout) if each["metadata"]["name"] == "dovetail-task-templates")
    file = tmp_path / "task_templates.yaml"
    file.write_text(config["data"]["task_templates.yaml"], encoding="utf-8")
    assert set(TemplateFile(file).read().by_kind) == {"training", "inference"}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("training.resources.share=0.5", "training/resources/share': got string, want number"),
        ("training.resources=null", "training/resources': got null, want object"),
        ("training.mode=Shared", "value must be one of 'Exclusive', 'Fractional', 'TimeShared'"),
        ("training.template.spec.containers=null", "containers': got null, want array"),
        ("inference.image=busybox", "additional properties 'image' not allowed"),
        ("trainings.gpu=1", "additional properties 'trainings' not allowed"),
    ],
)
def test_a_template_that_the_gateway_could_not_use_is_refused_by_helm(
    helm: Helm, values: Path, wrong: str, problem: str
) -> None:
    done = helm("template", "dovetail", str(CHART), f"--values={values}", f"--set=gateway.taskTemplates.{wrong}")
    assert (done.returncode != 0, problem in done.stderr) == (True, True), done.stderr


def test_the_account_of_scripts_has_the_rights_of_the_gateways_calls_and_no_others(render: Render) -> None:
    made = render(gateway__enabled=True, gateway__legacyServiceAccount="scripts", gateway__allocationNamespace="gpu")
    account = {"kind": "ServiceAccount", "name": "scripts", "namespace": "dovetail-system"}
    rules = {(each["kind"], each["metadata"]["name"]): each["rules"] for each in made if "rules" in each}
    found = {
        (each["kind"], each["metadata"].get("namespace")): [
            (rule["resources"], rule["verbs"]) for rule in rules[each["roleRef"]["kind"], each["roleRef"]["name"]]
        ]
        for each in made
        if account in (each.get("subjects") or ())
    }
    assert found == {
        ("RoleBinding", "gpu"): [
            (["gpujobs"], ["get", "list", "create", "patch", "delete"]),
            (["pods"], ["create"]),
        ],
        ("ClusterRoleBinding", None): [(["gpunodes"], ["patch"])],
    }
    assert any(each["kind"] == "ServiceAccount" and each["metadata"]["name"] == "scripts" for each in made)


def test_no_account_is_made_unless_it_is_named(render: Render) -> None:
    made = render(gateway__enabled=True)
    assert not [each for each in made if each["metadata"]["name"] in {"scripts", "dovetail-gateway-legacy"}]


def test_the_sandbox_has_templates_of_its_own() -> None:
    file = CHART.parents[1] / "sandbox" / "dovetail_sandbox" / "data" / "task_templates.yaml"
    assert set(TemplateFile(file).read().by_kind) == {"training", "inference"} == set(yaml.safe_load(file.read_text()))
