"""Panels, variables and links in the form that all dashboards share."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as StatPanel
from grafana_foundation_sdk.builders.table import Panel as TablePanel
from grafana_foundation_sdk.builders.timeseries import Panel as LinesPanel
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

# All dashboards have it, so that each links to the others.
TAG: Final = "dovetail"
_SOURCE: Final = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDTH: Final = 24

Unit = Literal["none", "short", "percentunit", "bytes", "s", "ops", "celsius", "watt", "currencyUSD", "h"]


class Limit(NamedTuple):
    """From which value a panel changes its colour."""

    value: float
    color: Literal["green", "yellow", "orange", "red"]


class Column(NamedTuple):
    """A column of a table: its query, and its unit. A gauge is drawn from 0 to 1."""

    query: str
    unit: Unit = "none"
    gauge: bool = False


def dashboard_of(title: str, *, uid: str, says: str, since: str = "now-3h") -> builders.Dashboard:
    """An empty dashboard with the choice of the data source, and links to the other dashboards."""
    links = (
        builders.DashboardLink("Dovetail")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .icon("external link")
        .include_vars(True)
        .keep_time(True)
    )
    return (
        builders.Dashboard(title)
        .uid(uid)
        .description(says)
        .tags([TAG, "gpu", "kubernetes"])
        .timezone("browser")
        .refresh("30s")
        .time(since, "now")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(links)
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )


def choice(name: str, *, label: str, metric: str, of: str | None = None) -> builders.QueryVariable:
    """A variable with the values of a label of a metric; all are chosen at first. `of` is the label if not `name`."""
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query({"query": f"label_values({metric}, {of or name})", "refId": name})
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(text="All", value="$__all"))
    )


def number(name: str, *, label: str, says: str, default: str) -> builders.TextBoxVariable:
    """A variable whose value is typed."""
    option = dashboard.VariableOption(text=default, value=default)
    return (
        builders.TextBoxVariable(name)
        .label(label)
        .description(says)
        .default_value(default)
        .current(option)
        .options([option])
    )


def stat(
    title: str,
    *,
    says: str,
    query: str,
    unit: Unit = "none",
    limits: Sequence[Limit] = (),
    width: int = 4,
    link: str = "",
) -> StatPanel:
    """One number with its course. `link` is the address of the page with the details."""
    panel = (
        StatPanel()
        .title(title)
        .description(says)
        .datasource(_SOURCE)
        .span(width)
        .height(4)
        .unit(unit)
        .color_scheme(builders.FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds(limits))
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA)
        .with_target(_query(query, legend="", ref="A"))
    )
    if unit == "percentunit":
        panel = panel.min(0).max(1)
    return panel.links([_link(link)]) if link else panel


def lines(
    title: str, *, says: str, queries: Mapping[str, str], unit: Unit = "none", width: int = 8, stacked: bool = False
) -> LinesPanel:
    """Values over time, by the legend of each query; a legend may name labels in `{{braces}}`."""
    panel = (
        LinesPanel()
        .title(title)
        .description(says)
        .datasource(_SOURCE)
        .span(width)
        .height(8)
        .unit(unit)
        .min(0)
        .line_width(1)
        .fill_opacity(25 if stacked else 8)
        .show_points(common.VisibilityMode.NEVER)
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
    )
    if stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    for place, (legend, query) in enumerate(queries.items()):
        panel = panel.with_target(_query(query, legend=legend, ref=_ref(place)))
    return panel


def table(
    title: str,
    *,
    says: str,
    columns: Mapping[str, Column],
    labels: Sequence[str],
    sort: str,
    links: Mapping[str, str] = {},
    width: int = _WIDTH,
) -> TablePanel:
    """The latest values as a table: `labels` first, then a column for each query, the largest of `sort` first.

    `links` are addresses by label; `${__value.text}` in one is the row's value.
    """
    panel = (
        TablePanel()
        .title(title)
        .description(says)
        .datasource(_SOURCE)
        .span(width)
        .height(10)
        .unit("none")
        .show_header(True)
        .sort_by([common_builders.TableSortByFieldState().display_name(sort).desc(True)])
    )
    names = {}
    for place, (name, column) in enumerate(columns.items()):
        panel = panel.with_target(
            _query(column.query, legend="", ref=_ref(place)).instant().format(PromQueryFormat.TABLE)
        )
        names[f"Value #{_ref(place)}" if len(columns) > 1 else "Value"] = name
        panel = panel.override_by_name(name, _properties(column))
    order = {label: place for place, label in enumerate(labels)} | {
        name: len(labels) + place for place, name in enumerate(names)
    }
    for label, address in links.items():
        panel = panel.override_by_name(
            label, [dashboard.DynamicConfigValue("links", [{"title": "details", "url": address}])]
        )
    organized = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    if len(columns) > 1:
        panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=organized))


def _properties(column: Column) -> list[dashboard.DynamicConfigValue]:
    found = [dashboard.DynamicConfigValue("unit", column.unit)]
    if column.gauge:
        found += [
            dashboard.DynamicConfigValue("min", 0),
            dashboard.DynamicConfigValue("max", 1),
            dashboard.DynamicConfigValue("custom.cellOptions", {"type": "gauge", "mode": "basic"}),
        ]
    return found


def _thresholds(limits: Sequence[Limit]) -> builders.ThresholdsConfig:
    steps = [dashboard.Threshold(value=None, color="text" if not limits else "green")]
    steps += [dashboard.Threshold(value=limit.value, color=limit.color) for limit in limits]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _query(query: str, *, legend: str, ref: str) -> Dataquery:
    return Dataquery().datasource(_SOURCE).expr(query).legend_format(legend).ref_id(ref).range()


def _link(address: str) -> builders.DashboardLink:
    return builders.DashboardLink("details").type(dashboard.DashboardLinkType.LINK).url(address).keep_time(True)


def _ref(place: int) -> str:
    return chr(ord("A") + place)
