"""Prepares a neighbour to run next to Dovetail: its webhooks' certificate, and its chart."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.errors import ToolUnavailableError
from dovetail_sandbox.installed import chart, neighbours
from dovetail_sandbox.installed.chart import Rendered
from dovetail_sandbox.installed.neighbours import Local, Neighbour
from dovetail_sandbox.programs import locate
from dovetail_sandbox.realnode.commands import call

_VALID_DAYS: Final = 365
# controller-runtime's default folder of a certificate, below the folder for temporary files.
_BELOW_TMPDIR: Final = Path("k8s-webhook-server/serving-certs")


def prepared(neighbour: Neighbour, *, cluster: Cluster, programs: Mapping[str, Path]) -> Rendered:
    """Render a neighbour's chart for this machine.

    Raises `ChartError`, and `ToolUnavailableError` without openssl.
    """
    folder, known = cluster.folder / "certificates" / neighbour.name / _BELOW_TMPDIR, cluster.state()
    certificate, key = _certificate(folder, names=neighbour.host_names)
    local = Local(
        webhook_port=known.ports[neighbours.port_name(neighbour, use="webhook")],
        health_port=known.ports[neighbours.port_name(neighbour, use="health")],
        certificates=folder,
        certificate=certificate,
        key=key,
    )
    rendered = chart.render(
        helm=programs["helm"],
        values=neighbour.values,
        release=neighbour.name,
        namespace=neighbour.namespace,
        source=locate.chart_of(programs[neighbour.name]),
    )
    return neighbours.adapted(rendered, neighbour=neighbour, local=local)


def _certificate(folder: Path, *, names: Sequence[str]) -> tuple[str, str]:
    """Write `tls.crt`, self-signed for 127.0.0.1 and these host names, and `tls.key`.

    Return both texts. Raises `ToolUnavailableError` without openssl.
    """
    if shutil.which("openssl") is None:
        raise ToolUnavailableError(["openssl"], reason="it is not installed, and a webhook needs a certificate")
    folder.mkdir(parents=True)
    certificate, key = folder / "tls.crt", folder / "tls.key"
    alternatives = ",".join([*(f"DNS:{name}" for name in names), "IP:127.0.0.1"])
    # PKCS #1 is the only form in which Kueue reads the key of its authority.
    call("openssl", "genrsa", "-traditional", "-out", key, "2048")
    call(
        *("openssl", "req", "-x509", "-new", "-key", key, "-out", certificate, "-days", _VALID_DAYS),
        *("-subj", "/CN=dovetail-sandbox", "-addext", f"subjectAltName={alternatives}"),
    )
    key.chmod(0o600)
    return certificate.read_text(encoding="utf-8"), key.read_text(encoding="utf-8")
