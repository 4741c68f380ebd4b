"""Which minor versions of Kubernetes a sandbox runs, and what is refused."""

import pytest

from dovetail_sandbox import bringup, progress
from dovetail_sandbox.errors import InvalidInputError, SandboxError
from dovetail_sandbox.programs import catalog, go_build, versions

MINORS = list(catalog.kubernetes_versions())
USUAL = catalog.minor_of(catalog.tool("kube-apiserver").version)


def test_without_a_choice_it_is_the_usual_one() -> None:
    assert versions.chosen(None, local_node=True, real_node=True) == USUAL


def test_the_known_ones_are_named_when_another_is_asked_for() -> None:
    with pytest.raises(InvalidInputError, match=r"kubernetes: '1\.20' is not allowed; use one of 1\.34, 1\.35, 1\.36"):
        bringup.fetch([], real_node=False, report=progress.reporter(), kubernetes="1.20")


def test_a_local_node_keeps_to_the_usual_one() -> None:
    with pytest.raises(InvalidInputError, match=rf"'1\.34 with --local' is not allowed; use {USUAL}"):
        versions.chosen("1.34", local_node=True)


def test_a_real_node_is_never_newer_than_its_api_server() -> None:
    assert versions.chosen("1.37", real_node=True) == "1.37"
    with pytest.raises(InvalidInputError, match=rf"'1\.35 with --real-node' is not allowed; use {USUAL} or newer"):
        versions.chosen("1.35", real_node=True)


def test_a_sandbox_that_is_up_keeps_its_version() -> None:
    versions.check_running("one", running="1.36", wanted=None)
    versions.check_running("one", running="1.36", wanted="1.36")
    with pytest.raises(SandboxError, match=r"'one' is up with Kubernetes 1\.36\. For 1\.34, use another name"):
        versions.check_running("one", running="1.36", wanted="1.34")


@pytest.mark.parametrize("minor", MINORS)
def test_each_version_has_programs_of_its_own_from_a_module_that_pins_it(minor: str) -> None:
    tool = catalog.tool("kube-apiserver", kubernetes=minor)
    assert catalog.minor_of(tool.version) == minor
    module = go_build.module_folder(tool.folder)
    requirement = f"k8s.io/kubernetes {tool.version}"
    assert requirement in (module / "go.mod").read_text()
    assert f"{requirement} h1:" in (module / "go.sum").read_text()
    assert f"gitVersion={tool.version}" in tool.ldflags
    # They are one file, of one source for all versions.
    assert {catalog.tool(name, kubernetes=minor).package for name in catalog.BY_MINOR} == {tool.package}
    assert (module / "go.mod").read_text().startswith(f"module {tool.package}\n")
    source = catalog.tool("kube-apiserver").folder
    assert tool.source == ("" if minor == USUAL else source)
    assert (module / "main.go").exists() == (tool.folder == source)


def test_programs_that_exist_once_serve_every_version() -> None:
    for name in ("kubectl", "kubelet", "etcd", "kwok"):
        assert catalog.tool(name, kubernetes="1.34") is catalog.tool(name)
