"""The chart knows the kinds of guests that the code knows, with the field that holds each."""

from typing import Any

import yaml

from dovetail.jobs.guests.registry import KINDS
from dovetail.jobs.guests.replicas import REPLICATED
from tests.chart.generated import CHART


def told(name: str) -> list[dict[str, Any]]:
    """A list of kinds in the chart's helpers."""
    text = CHART.joinpath("templates", "_helpers.tpl").read_text(encoding="utf-8")
    body = text.split(f'{{{{- define "dovetail.{name}" -}}}}', 1)[1].split("{{- end }}", 1)[0]
    found: list[dict[str, Any]] = yaml.safe_load(body)
    return found


def test_the_chart_has_each_kind_with_the_field_that_holds_it() -> None:
    expected = [
        {
            "group": kind.resource.group,
            "resource": kind.resource.plural,
            "suspend": ".".join(("spec", *map(str, kind.suspend_path))),
        }
        for kind in KINDS
    ]
    assert told("guests") == expected


def test_the_chart_has_each_kind_whose_replicas_wait() -> None:
    expected = [{"group": each.resource.group, "resource": each.resource.plural} for each in REPLICATED]
    assert told("replicated") == expected
