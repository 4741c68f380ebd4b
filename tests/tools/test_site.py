"""The documentation builds as a site without a warning, and its generated references have what they are made from."""

from pathlib import Path

import pytest
import yaml

from tools.site.__main__ import build
from tools.site.crds import reference
from tools.site.sources import unlisted, write


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    write(folder)
    return folder


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    assert build(tmp_path) == 0
    built = tmp_path / "site"
    assert (built / "crds" / "gpujobs.html").exists()
    assert "dovetail.gpu.request" in (built / "api" / "gpu.html").read_text(encoding="utf-8")


def test_a_broken_link_fails_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def broken(folder: Path) -> list[object]:
        folder.mkdir()
        (folder / "index.md").write_text("# Page\n\n[nowhere](missing.md)\n", encoding="utf-8")
        return [{"Page": "index.md"}]

    assert build(tmp_path, pages=broken) != 0
    assert "page does not exist" in capfd.readouterr().err


def test_every_page_is_in_the_navigation() -> None:
    assert unlisted() == []


def test_links_lead_to_the_copies(pages: Path) -> None:
    jobs = (pages / "jobs.md").read_text(encoding="utf-8")
    assert "(examples.md#first)" in jobs
    assert "(gpujob.md)" in jobs
    decision = (pages / "decisions" / "0006-turns.md").read_text(encoding="utf-8")
    assert "(../suspend.md)" in decision
    assert "(install.md)" in (pages / "readme.md").read_text(encoding="utf-8")


def test_a_crd_becomes_a_table_of_its_fields_and_rules(tmp_path: Path) -> None:
    schema = {
        "description": "A thing.",
        "required": ["spec"],
        "properties": {
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "description": "What it | is.",
                "properties": {"size": {"type": "integer", "minimum": 1, "default": 3}},
                "x-kubernetes-validations": [
                    {"rule": "true", "message": "size must fit"},
                    {
                        "rule": "true",
                        "message": "?",
                        "messageExpression": "!(a) ? 'it\\'s odd' : !(b) ? 'too odd' : ''",
                    },
                ],
            },
        },
    }
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Thing", "plural": "things"}
    spec = {"group": "example.org", "names": names, "scope": "Cluster", "versions": [version]}
    path = tmp_path / "things.yaml"
    path.write_text(yaml.safe_dump({"spec": spec}), encoding="utf-8")
    assert reference(path).splitlines() == [
        "# Thing",
        "",
        "A thing.",
        "",
        "`apiVersion: example.org/v1`, scope Cluster. Also: `things`.",
        "",
        "| field | type | meaning |",
        "|---|---|---|",
        "| `spec` | object | What it \\| is. (required) |",
        "| `spec.size` | integer |  (at least 1; default `3`) |",
        "",
        "## Rules",
        "",
        "The API server refuses an object that breaks one of these:",
        "",
        "- size must fit",
        "- it's odd",
        "- too odd",
    ]
