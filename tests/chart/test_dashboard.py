import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

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
from dovetail_operator.metrics import JobsCollector, TenantsCollector, make_counters
from dovetail_operator.notifications.notifier import Notifier
from dovetail_operator.notifications.transports import NoTransport
from dovetail_operator.state.due_records import Dues
from dovetail_operator.state.state import build_state
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_webhook.metrics import Metrics as WebhookMetrics
from tests.agent.builders import NOON
from tests.chart.conftest import Render

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "dashboards" / "dovetail.json").read_text(encoding="utf-8"))
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel["targets"]:
            # What Grafana puts in before it asks.
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$node", ".*")


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
    operator.register(JobsCollector(state))
    operator.register(TenantsCollector(NodeTenants(client, pods=list, vendors=Settings().vendors, rng=Random(0))))
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


@pytest.mark.parametrize(("panel", "expression"), list(expressions()))
def test_every_expression_parses_and_asks_for_metrics_that_exist(panel: str, expression: str) -> None:
    names = set(metrics_in(promql_parser.parse(expression)))
    assert names
    assert names <= EXPOSED, f"{panel}: nobody exposes {names - EXPOSED}"


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


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_ids_are_unique_and_the_data_source_is_a_choice() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${datasource}"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"]))) == {"datasource", "node", "__rate_interval"}


def test_the_chart_hands_it_to_grafana_s_sidecar_unchanged(render: Render) -> None:
    chart = render(monitoring__dashboard__enabled=True)
    (found,) = [each for each in chart if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    assert json.loads(found["data"]["dovetail.json"]) == DASHBOARD


def test_the_documentation_lists_every_metric_and_no_other() -> None:
    documented = set(re.findall(r"`(dovetail_\w+)`", (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")))
    whole = {next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name) for name in EXPOSED}
    assert documented == whole


def test_the_prometheus_of_the_documentation_asks_the_ports_that_it_says() -> None:
    config = yaml.safe_load((ROOT / "dashboards" / "prometheus.yml").read_text(encoding="utf-8"))
    ports = {
        each["labels"]["component"]: int(each["targets"][0].rpartition(":")[2])
        for each in config["scrape_configs"][0]["static_configs"]
    }
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert ports == {name: int(port) for name, port in re.findall(r"--set (\w+)\.metricsPort=(\d+)", text)}
