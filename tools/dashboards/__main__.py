"""Writes all dashboards: `python -m tools.dashboards`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards import cost, devices, fleet, job, queue, scheduler

_ROOT: Final = Path(__file__).parents[2]
# The second folder is the chart's, for Grafana's sidecar.
FOLDERS: Final = (_ROOT / "dashboards", _ROOT / "helm" / "dovetail" / "dashboards")
_ALL: Final[Mapping[str, Callable[[], Dashboard]]] = MappingProxyType(
    {each.UID: each.build for each in (fleet, queue, scheduler, devices, job, cost)}
)


def documents() -> dict[str, dict[str, Any]]:
    """The dashboards as Grafana reads them, by name of the file."""
    return {f"{uid}.json": _document(build()) for uid, build in _ALL.items()}


def text_of(document: dict[str, Any]) -> str:
    """The content of a dashboard's file."""
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _document(builder: Dashboard) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(builder.build(), cls=JSONEncoder))
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number
    return document


if __name__ == "__main__":
    for name, document in documents().items():
        for folder in FOLDERS:
            folder.joinpath(name).write_text(text_of(document), encoding="utf-8")
