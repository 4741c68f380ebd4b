"""The chart's Certificates against the CRDs of cert-manager. Its controller does not run here."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests import go_modules
from tests.chart.generated import CHART, IMAGES

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MODULE: Final = "github.com/cert-manager/cert-manager@v1.21.2"
ISSUERS: Final = (
    "--set=webhook.issuer.name=internal",
    "--set=attach.enabled=true",
    "--set=attach.issuer.name=internal",
)


def run(program: str, *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    path = locate.resolve([program], report=Lines(sys.stderr))[program]
    words = [str(path), *map(str, arguments)]
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def kubectl(sandbox: Cluster) -> Iterator[Any]:
    """kubectl of a cluster that knows cert-manager's kinds."""

    def call(*arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
        return run("kubectl", f"--kubeconfig={sandbox.kubeconfig}", *arguments, text=text)

    folder = go_modules.contents(MODULE, pinned_in=Path(__file__).with_name("cert-manager")) / "deploy" / "crds"
    crds = [f"--filename={path}" for path in sorted(folder.glob("cert-manager.io_*.yaml"))]
    applied = call("apply", "--server-side", *crds)
    assert applied.returncode == 0, applied.stderr
    waited = call("wait", "--for=condition=Established", "--timeout=60s", *crds)
    assert waited.returncode == 0, waited.stderr
    yield call
    call("delete", "--wait=false", *crds)


@pytest.fixture(scope="module")
def certificates() -> dict[str, dict[str, Any]]:
    """What the chart makes of two issuers, by name."""
    rendered = run("helm", "template", "dovetail", CHART, IMAGES, "--namespace=dovetail-system", *ISSUERS)
    assert rendered.returncode == 0, rendered.stderr
    objects = [each for each in yaml.safe_load_all(rendered.stdout) if each and each["kind"] == "Certificate"]
    return {each["metadata"]["name"]: each for each in objects}


def create(kubectl: Any, manifest: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = kubectl(
        "create", "--dry-run=server", "--validate=strict", "-f", "-", text=yaml.safe_dump(manifest)
    )
    return done


@pytest.mark.parametrize("name", ["dovetail-webhook", "dovetail-extender", "dovetail-extender-client"])
def test_cert_managers_crds_accept_each_certificate_of_the_chart(kubectl: Any, certificates: Any, name: str) -> None:
    done = create(kubectl, certificates[name])
    assert (done.returncode, done.stderr) == (0, "")


def test_no_certificate_of_the_chart_is_left_out(certificates: Any) -> None:
    assert set(certificates) == {"dovetail-webhook", "dovetail-extender", "dovetail-extender-client"}


@pytest.mark.parametrize(
    "change",
    [{"usages": ["serving"]}, {"dnsName": "a"}, {"privateKey": {"algorithm": "EC"}}],
    ids=lambda each: next(iter(each)),
)
def test_a_field_or_value_that_they_do_not_know_would_be_found(kubectl: Any, certificates: Any, change: Any) -> None:
    wrong = certificates["dovetail-webhook"]
    done = create(kubectl, {**wrong, "spec": {**wrong["spec"], **change}})
    assert done.returncode != 0
    assert next(iter(change)) in done.stderr
