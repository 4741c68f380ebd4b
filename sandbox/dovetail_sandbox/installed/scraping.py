"""The configuration of a Prometheus that scrapes a sandbox. Pure."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from dovetail_sandbox.state import Component

_PORT: Final = "--metrics-port="
_SCRAPE_INTERVAL: Final = "5s"


def configuration(components: Iterable[Component], *, credential: Path) -> str:
    """Return a prometheus.yml with one target for each component that serves metrics, labeled by its name."""
    targets = [
        {"targets": [f"127.0.0.1:{word.removeprefix(_PORT)}"], "labels": {"component": component.name}}
        for component in components
        for word in component.argv
        if word.startswith(_PORT)
    ]
    files = {"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"}
    job: dict[str, Any] = {
        "job_name": "dovetail",
        # As the chart's PodMonitors: a metric's own `job` and `namespace` are those of the pod with the GPU.
        "honor_labels": True,
        "scheme": "https",
        "tls_config": {key: str(credential / name) for key, name in files.items()},
        "static_configs": targets,
    }
    return yaml.safe_dump({"global": {"scrape_interval": _SCRAPE_INTERVAL}, "scrape_configs": [job]}, sort_keys=False)
