import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import promql_parser
import pytest
from prometheus_client import CollectorRegistry

from dovetail.audit.allocations import Rules
from dovetail.cluster.view import ClusterView
from dovetail.config.settings import Settings
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_agent.agent import Agent
from dovetail_agent.devices.simulated.provider import SimulatedProvider
from dovetail_agent.main import rules_of
from dovetail_agent.metrics import AgentCollector
from dovetail_certificates.metrics import Metrics as CertificatesMetrics
from dovetail_extender.metrics import Metrics, Reading
from dovetail_operator.events.recorder import JobEvents
from dovetail_operator.history.recorder import History
from dovetail_operator.history.store import HistoryStore
from dovetail_operator.leader import leadership
from dovetail_operator.metrics import make_counters, register_collectors
from dovetail_operator.notifications.notifier import Notifier
from dovetail_operator.notifications.transports import NoTransport
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import build_state
from dovetail_operator.watchers.audit import AuditWatch
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_webhook.metrics import Metrics as WebhookMetrics
from tests.agent.builders import NOON
from tests.chart.conftest import Render
from tools.dashboards.__main__ import FOLDERS, documents, text_of

ROOT = Path(__file__).parents[2]
DASHBOARDS = documents()
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


# What Grafana puts in before it asks.
VARIABLES = {"__rate_interval": "5m", "__range": "3h", "price": "2.5", "datasource": "prometheus"}


def panels() -> list[dict[str, Any]]:
    return [panel for each in DASHBOARDS.values() for panel in each["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    for name, document in DASHBOARDS.items():
        for panel in document["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']}", filled_in(target["expr"])


def filled_in(expression: str) -> str:
    """An expression as Grafana asks it, with all values of the variables that choose."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: VARIABLES.get(found[1], ".*"), expression)


def metrics_in(node: Any) -> Iterator[str]:
    if isinstance(node, promql_parser.VectorSelector):
        yield str(node.name)
    for part in ("expr", "lhs", "rhs", "vector_selector"):
        if (inner := getattr(node, part, None)) is not None:
            yield from metrics_in(inner)
    for argument in getattr(node, "args", []):
        yield from metrics_in(argument)


def exposed() -> set[str]:
    """The names of all samples that operator, extender, agent, webhook and dovetail-certificates can give."""
    ledger = Ledger()
    operator = CollectorRegistry()
    make_counters(operator)
    client, state = (
        Client(Connection(server="http://127.0.0.1:1")),
        build_state(ClusterView(ledger=ledger)),
    )
    tenants = NodeTenants(client, pods=list, vendors=Settings().vendors, rng=Random(0))
    office = leadership(client, namespace="dovetail-system")
    register_collectors(operator, state=state, tenants=tenants, office=office, now=lambda: NOON)
    AuditWatch(
        client, nodes=list, gpunodes=list, pods=list, jobs=list, rules=Rules(), registry=operator, now=lambda: NOON
    )
    store = HistoryStore("sqlite:///never-opened")
    History(
        client, state=state, store=store, dues=Dues(), keep_days=1, registry=operator, now=lambda: NOON, rng=Random(0)
    )
    Notifier(client, sender=NoTransport(), post=lambda _: None, registry=operator, rng=Random(0))
    JobEvents(client, is_busy=lambda: False, registry=operator, now=lambda: NOON, rng=Random(0))
    extender = Metrics(ledger=ledger, read=lambda: Reading(ages_seconds={"nodes": 1.0})).registry
    agent = CollectorRegistry()
    agent.register(
        AgentCollector(Agent(client, provider=SimulatedProvider(), rules=rules_of(Settings()), clock=lambda: NOON))
    )
    return {
        family.name + suffix
        for registry in (operator, extender, agent, WebhookMetrics().registry, CertificatesMetrics().registry)
        for family in registry.collect()
        for suffix in SUFFIXES.get(family.type, ("",))
    }


EXPOSED = exposed()
# Parts of a histogram that documentation does not list.
PARTS = ("_bucket", "_count", "_sum", "_created")


def test_every_expression_parses_and_asks_for_metrics_that_exist() -> None:
    asked = [(panel, set(metrics_in(promql_parser.parse(expression)))) for panel, expression in expressions()]
    assert asked
    assert [panel for panel, names in asked if not names] == []
    assert {panel: names - EXPOSED for panel, names in asked if names - EXPOSED} == {}


def test_a_misspelt_metric_would_be_found() -> None:
    names = set(metrics_in(promql_parser.parse("sum(rate(dovetail_extender_bind_total[5m])) / on() dovetail_jobs")))
    assert names == {"dovetail_extender_bind_total", "dovetail_jobs"}
    assert names - EXPOSED == {"dovetail_extender_bind_total"}


def test_every_part_s_own_metrics_are_looked_at_somewhere() -> None:
    shown = {name for _, expression in expressions() for name in metrics_in(promql_parser.parse(expression))}
    for prefix in ("dovetail_jobs", "dovetail_extender_", "dovetail_device_", "dovetail_agent_"):
        assert any(name.startswith(prefix) for name in shown)


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARDS[name]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("name", DASHBOARDS)
def test_ids_are_unique_and_every_variable_exists(name: str) -> None:
    document = DASHBOARDS[name]
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    queries = [target for panel in document["panels"] for target in panel.get("targets", [])]
    assert {target["datasource"]["uid"] for target in queries} == {"${datasource}"}
    known = {variable["name"] for variable in document["templating"]["list"]} | {"__rate_interval", "__range"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(queries))) <= known


def test_dashboards_link_to_each_other_and_to_nothing_else() -> None:
    uids = {document["uid"] for document in DASHBOARDS.values()}
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(DASHBOARDS)))
    assert linked
    assert linked <= uids
    assert all(document["links"][0]["tags"] == ["dovetail"] for document in DASHBOARDS.values())
    assert all("dovetail" in document["tags"] for document in DASHBOARDS.values())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_the_files_are_those_that_the_code_writes(folder: Path) -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    assert found == {name: text_of(document) for name, document in DASHBOARDS.items()}, (
        "run `python -m tools.dashboards`"
    )


def test_the_chart_hands_them_to_grafana_s_sidecar_unchanged(render: Render) -> None:
    chart = render(monitoring__dashboard__enabled=True)
    (found,) = [each for each in chart if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert {name: json.loads(text) for name, text in found["data"].items()} == DASHBOARDS


def test_the_documentation_lists_every_metric_and_no_other() -> None:
    documented = set(re.findall(r"`(dovetail_\w+)`", (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")))
    whole = {next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name) for name in EXPOSED}
    assert documented == whole
